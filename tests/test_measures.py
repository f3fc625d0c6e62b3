"""What every table says about a measure."""

from odst.progress import duration
from odst.report.measures import HIGH, LOW, MEASURES
from runs import bar_world, config, make_run


def test_a_cell_is_a_percentage_a_number_a_count_or_a_dash() -> None:
    assert MEASURES["error"].text(0.03186) == "3.19" and MEASURES["error"].text(0.03186, 1) == "3.2"
    assert MEASURES["nll"].text(0.12345) == "0.123" and MEASURES["selected"].text(12345) == "12,345"
    assert MEASURES["nll"].text(None) == MEASURES["selected"].text(None) == MEASURES["error"].text(None) == "–"


def test_the_best_is_the_lowest_or_highest_that_is_known() -> None:
    values = [None, 0.3, 0.1, 0.2]
    for measure in MEASURES.values():
        assert measure.best(values) == {LOW: 0.1, HIGH: 0.3}.get(measure.better)
        assert measure.best([None]) is None


def test_every_measure_is_a_key_of_metrics_jsonl_from_its_first_round_on(tmp_path) -> None:
    run = make_run(tmp_path / "run", bar_world(pool=60), config(), rounds=2)
    for one in run.metrics():
        for measure in MEASURES.values():
            known = one["round"] >= measure.since and measure.key != "corruption_error"  # which must be asked for
            assert (one.get(measure.key) is not None) == known, (measure.key, one["round"])


def test_a_time_is_said_in_the_unit_people_use() -> None:
    assert [duration(2.34), duration(2.34, 0), duration(600), duration(9000)] == ["2.3 s", "2 s", "10 min", "2.5 h"]
