"""The sizes of logs and archive as text."""

from __future__ import annotations

from viewstamp.demo.archive_sizes import Size, Sizes, text_plot


def test_the_plot_shows_each_line_and_the_events() -> None:
    sizes = Sizes()
    sizes.measured = [Size(float(at), 10_000_000 * at, 4_000_000, 0 if at < 5 else 20_000_000) for at in range(11)]
    sizes.events = [(5.0, "all records are archived")]
    shown = text_plot(sizes, width=21, height=6).splitlines()
    assert shown[0] == "   100.0 |                    ."
    assert [line[10:] for line in shown[1:6]].count("") <= 1
    assert any("#" in line for line in shown)
    assert any("o" in line[10:31] for line in shown[:6])
    assert shown[-1] == "          1   5.0 s  all records are archived"
    assert (sizes.log_peak, sizes.log_end, sizes.archive_end) == (4_000_000, 4_000_000, 20_000_000)


def test_nothing_measured_is_an_empty_plot() -> None:
    assert text_plot(Sizes()) == ""
