from ros_rl.data.crash import drill


def test_d1_killing_a_recorder_loses_no_committed_episode(tmp_path):
    ticks = []
    result = drill(2, 0, tmp_path, lambda: ticks.append(1))
    assert len(ticks) == result["kills"] == 2
    assert result["committed_episodes_lost"] == 0 and result["unreadable_datasets"] == 0
    assert result["open_episodes"] <= 2 and result["tail_lost_s"]["p50"] <= result["tail_lost_s"]["max"]
