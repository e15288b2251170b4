"""The lag of a query, from Spark's progress reports; with Spark itself in ``test_stream_source.py``."""

from __future__ import annotations

import json

from viewstamp.spark.progress import lag


def source(end: object, latest: object) -> dict[str, object]:
    return {"endOffset": end, "latestOffset": latest}


def test_the_lag_is_the_distance_to_the_ends_of_the_topics() -> None:
    end, latest = {"v": 1, "a": 10, "b": 5, "/v": 2}, {"v": 1, "a": 25, "b": 5, "/v": 3}
    assert lag({"sources": [source(end, latest)]}) == {"a": 15, "b": 0, "v": 1}
    assert lag({"sources": [source(json.dumps(end), json.dumps(latest))]}) == {"a": 15, "b": 0, "v": 1}


def test_a_topic_that_the_micro_batch_does_not_have_yet_is_left_out() -> None:
    assert lag({"sources": [source({"v": 1, "a": 10}, {"v": 1, "a": 10, "b": 7})]}) == {"a": 0}


def test_of_several_sources_the_one_further_behind_counts_and_others_do_not() -> None:
    sources = [source({"v": 1, "a": 3}, {"v": 1, "a": 5}), source({"v": 1, "a": 1}, {"v": 1, "a": 5})]
    others = [source(7, 9), source("{", "}"), source({"logOffset": 1}, None), source(None, None), {}]
    assert lag({"sources": [*sources, *others]}) == {"a": 4}


def test_without_progress_there_is_no_lag() -> None:
    assert lag(None) == {}
    assert lag({}) == {}
