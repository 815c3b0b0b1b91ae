"""Tests of ros_rl.learning.fall_results: the table and its claims from numbers by hand."""

import pytest

from ros_rl.learning.fall_results import claims, falls_until, final_return, markdown, summary

COLUMNS = ["steps", "falls", "stuck", "return"]


def run_of(*rows, failed=None, guard=None) -> dict:
    return {"columns": COLUMNS, "evaluations": [list(row) for row in rows], "failed": failed, "steps": rows[-1][0], "guard": guard}


def test_falls_are_counted_until_the_threshold_and_all_of_them_without():
    run = run_of([0, 0, 0, -5], [10, 7, 1, 50], [20, 9, 1, 100], [30, 9, 4, 80])
    assert falls_until(run, 90.0) == (10.0, True)
    assert falls_until(run, 40.0) == (8.0, True)
    assert falls_until(run, 101.0) == (13.0, False)
    broken = {**run, "failed": {"steps": 40, "reason": "diverged"}, "evaluations": [*run["evaluations"], [40, 12, 4, None]]}
    assert falls_until(broken, 40.0) == (16.0, False)
    assert final_return(run) == final_return(broken) == 80.0


def test_a_summary_by_hand():
    """Three runs of each of two methods; the best mean final return is (90 + 100 + 110) / 3."""
    guard = {"rescue_rate": 0.73, "steps": 150_000, "falls": 4321}
    ppo = [run_of([0, 0, 0, 0], [2000, falls, 0, 70], [4000, 2 * falls, 0, final]) for falls, final in ((10, 90), (20, 100), (60, 110))]
    full = [run_of([0, 0, 0, 0], [2000, 1, 1, 80], [4000, 3, 2, 85], guard=guard) for _ in range(2)]
    full.append(run_of([0, 0, 0, 0], [1000, 4, 0, None], failed={"steps": 1000, "reason": "diverged"}, guard=guard))
    table = summary("halfcheetah", "strong", {"ppo": ppo, "full": full})
    assert (table["threshold"], table["steps"], table["seeds"], table["guard"]) == (80.0, 4000, 3, guard)
    rows = table["methods"]
    assert rows["ppo"]["falls_until_threshold"]["runs"] == [20.0, 40.0, 120.0]
    assert rows["ppo"]["falls_until_threshold"]["median"] == 40.0
    assert rows["ppo"]["falls_until_threshold"]["iqm"] == 60.0  # of three runs it is their mean
    assert rows["ppo"]["falls_per_100k_steps"]["runs"] == [500.0, 1000.0, 3000.0]
    assert (rows["ppo"]["falls"], rows["ppo"]["stuck"]) == ([20.0, 40.0, 120.0], [0.0, 0.0, 0.0])
    assert rows["full"]["falls_until_threshold"]["runs"] == [2.0, 2.0, 4.0]
    assert rows["full"]["passed"] == [True, True, False]
    assert rows["full"]["falls_per_100k_steps"]["runs"] == [125.0, 125.0, 400.0]
    assert rows["full"]["stuck"] == [2.0, 2.0, 0.0]
    assert rows["full"]["final_return"]["runs"] == [85.0, 85.0, 0.0]
    assert [(entry["measured"], entry["holds"]) for entry in table["claims"]] == [(20.0, False), ("85 beside 100", False)]
    lines = markdown(table).splitlines()
    assert lines[2].startswith("| PPO | 40; 60 (20–120) | 3 of 3 |")
    assert lines[3].startswith("| SafeExplorer | 2.0; 2.7 (2.0–4.0) | 2 of 3, one failed at step 1000 |")
    assert "150000 steps with 4321 falls were spent on the recovery policy before, in simulation. It rescues 73%." in lines[5]


def test_a_threshold_below_zero_is_not_above_the_best():
    runs = {"ppo": [run_of([0, 0, 0, -300], [10, 5, 0, -100])], "full": [run_of([0, 0, 0, -300], [10, 1, 0, -200])]}
    table = summary("halfcheetah", "strong", runs)
    assert table["threshold"] == -120.0
    assert table["methods"]["ppo"]["passed"] == [True] and table["methods"]["full"]["passed"] == [False]
    assert not table["claims"][1]["holds"]


def row_of(falls: float, final: float, passed: bool = True, failed: bool = False) -> dict:
    broken = {"steps": 1, "reason": ""} if failed else None
    return {
        "falls_until_threshold": {"median": falls},
        "final_return": {"median": final},
        "passed": [True, True, passed],
        "failed": [None, None, broken],
    }


def test_claims_are_judged_by_medians():
    rows = {"ppo": row_of(1000, 100), "unmasked": row_of(900, 100, False), "masked": row_of(300, 100), "masked_value": row_of(100, 100)}
    rows |= {"full": row_of(90, 96), "recovery_rl": row_of(200, 50)}
    assert [entry["holds"] for entry in claims("ant", "weak", rows)] == [True] * 5
    rows["full"] = row_of(90, 96, False)
    assert not claims("ant", "strong", rows)[0]["holds"]  # few falls are nothing to who never gets there
    rows["full"] = row_of(90, 96, failed=True)
    assert not claims("ant", "strong", rows)[1]["holds"]
    rows["full"] = row_of(130, 90, False)
    assert [entry["holds"] for entry in claims("ant", "weak", rows)] == [False, False, False, True, False]
    assert len(claims("ant", "strong", rows)) == len(claims("halfcheetah", "weak", rows)) == 4  # the weak one is said of the Ant
    assert claims("halfcheetah", "strong", {"masked": row_of(1, 1)}) == []


@pytest.mark.parametrize(
    ("full", "ppo", "holds"), [(-100, -100, True), (-200, -100, False), (-104, -100, True), (1, 0, True), (-1, 0, False)]
)
def test_returns_around_zero_are_compared_by_their_difference(full, ppo, holds):
    rows = {"ppo": row_of(0, ppo), "full": row_of(0, full)}
    assert claims("halfcheetah", "strong", rows)[1]["holds"] == holds


def test_one_fall_and_none_are_no_order():
    rows = {"full": row_of(1, 1), "masked_value": row_of(0, 1), "masked": row_of(1, 1), "unmasked": row_of(1, 1)}
    assert claims("halfcheetah", "strong", rows)[0]["holds"]
    rows["full"] = row_of(2, 1)
    assert not claims("halfcheetah", "strong", rows)[0]["holds"]
