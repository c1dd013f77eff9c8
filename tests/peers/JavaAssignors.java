// Runs Apache Kafka's own assignors: one case a line on stdin, as JSON, one result a line on stdout.
// Run by Java's source launcher with the client's jars on the class path; see assignors.py beside it.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class JavaAssignors {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Node NOWHERE = new Node(0, "localhost", 9092);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine())
            System.out.println(assign(JSON.readTree(line)));
    }

    static ObjectNode assign(JsonNode given) {
        Map<String, Subscription> members = new HashMap<>();
        given.get("members").fields().forEachRemaining(e -> members.put(e.getKey(), subscription(e.getValue())));
        Map<String, Assignment> assigned = assignor(given.get("assignor").asText())
            .assign(cluster(given.get("topics")), new GroupSubscription(members)).groupAssignment();
        ObjectNode result = JSON.createObjectNode();
        for (Map.Entry<String, Assignment> entry : assigned.entrySet()) {
            ArrayNode partitions = result.putArray(entry.getKey());
            for (TopicPartition partition : entry.getValue().partitions())
                partitions.addArray().add(partition.topic()).add(partition.partition());
        }
        return result;
    }

    static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    static Subscription subscription(JsonNode given) {
        List<String> topics = new ArrayList<>();
        given.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        given.get("owned").forEach(p -> owned.add(new TopicPartition(p.get(0).asText(), p.get(1).asInt())));
        JsonNode data = given.get("user_data");
        ByteBuffer userData = data.isNull() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(data.asText()));
        Subscription made = new Subscription(
            topics, userData, owned, given.get("generation").asInt(), text(given.get("rack")));
        made.setGroupInstanceId(text(given.get("instance_id")));
        return made;
    }

    static Optional<String> text(JsonNode given) {
        return given.isNull() ? Optional.empty() : Optional.of(given.asText());
    }

    static Cluster cluster(JsonNode topics) {
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                Node[] replicas = replicas(racks);
                partitions.add(new PartitionInfo(topic.getKey(), number++, NOWHERE, replicas, replicas));
            }
        });
        return new Cluster("cluster", List.of(NOWHERE), partitions, Set.of(), Set.of());
    }

    static Node[] replicas(JsonNode racks) {
        List<Node> nodes = new ArrayList<>();
        racks.forEach(rack -> nodes.add(new Node(1 + nodes.size(), "localhost", 9092, rack.asText())));
        return nodes.isEmpty() ? new Node[] {NOWHERE} : nodes.toArray(new Node[0]);
    }
}
