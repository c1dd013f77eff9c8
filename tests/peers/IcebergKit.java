import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.util.Optional;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests;
import org.junit.jupiter.api.AfterEach;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs the catalog tests of Iceberg's REST compatibility kit, and prints a line for each: its outcome, name, words. */
public class IcebergKit {
  public static void main(String[] arguments) {
    LauncherDiscoveryRequest request =
        LauncherDiscoveryRequestBuilder.request()
            .selectors(selectClass(Everything.class))
            .configurationParameter("rck.local", "false")
            .build();
    LauncherFactory.create().execute(request, new Teller());
  }

  /** The kit with what it leaves out for the sake of its own server, which knows neither nesting nor slashes. */
  public static class Everything extends RESTCompatibilityKitCatalogTests {
    /** Of the tests of nested namespaces, one leaves this one and another wants it to be absent. */
    @AfterEach
    void leaveNoParent() {
      catalog().dropNamespace(Namespace.of("parent"));
    }

    @Override
    protected boolean supportsNestedNamespaces() {
      return true;
    }

    @Override
    protected boolean supportsNamesWithSlashes() {
      return true;
    }
  }

  private static class Teller implements TestExecutionListener {
    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
      tell("SKIPPED", test, reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
      boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
      if (test.isTest() || !passed) {
        Optional<Throwable> problem = result.getThrowable();
        tell(result.getStatus().name(), test, problem.map(Throwable::toString).orElse(""));
      }
    }

    private void tell(String outcome, TestIdentifier test, String words) {
      System.out.println(outcome + "\t" + test.getDisplayName() + "\t" + words.replaceAll("\\s+", " "));
    }
  }
}
