"""The benchmark of a load's growth: it runs on a real catalog and broker, and its page has every figure."""

from pathlib import Path

import lake_growth


def test_every_size_has_its_line_on_the_page(tmp_path: Path) -> None:
    sizes = lake_growth.Sizes(files=(20, 40), loads=(2, 4), files_of_loads=20, samples=1)
    growths = lake_growth.Run(sizes, tmp_path, lambda words: None).growths()
    assert [[figure.size for figure in growth.figures] for growth in growths] == [[20, 40]] * 2 + [[2, 4]] * 3
    assert all(figure.cpu_s > 0 for growth in growths for figure in growth.figures)
    page = lake_growth.page(growths, sizes)
    assert all(row in page for growth in growths for row in growth.rows())


def test_a_ratio_is_that_to_the_line_above() -> None:
    figures = [lake_growth.Figure(size=size, cpu_s=cpu_s, wall_s=1.0) for size, cpu_s in ((10, 0.1), (100, 0.25))]
    first, second = lake_growth.Growth(title="look", unit="loads", figures=figures).rows()
    assert first.endswith("| – |")
    assert second.endswith("| 2.50× |")
