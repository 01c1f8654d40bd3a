"""The public cases of this field that are tests here, and where: every name must exist.

The numbers are those of a collection of public bugs and field reports.  Some are told as a history
and run as well; what only a product can show is a test on that product.  `test_` is left out.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

CASES: dict[str, dict[str, list[str]]] = {
    "C03 the lock was taken, the answer was lost": {
        "cases_histories": [
            "c03_a_lost_answer_recorded_as_unknown_accuses_nobody",
            "c03_but_it_explains_one_lease_and_no_second_one",
            "c03_recorded_as_failed_the_service_looks_guilty",
        ],
        "workloads_grants": [
            "c03_a_lost_answer_makes_nobody_guilty",
        ],
        "message_real": [
            "an_acquire_whose_reply_is_lost_is_unknown_and_never_a_refusal",
        ],
    },
    "C05 executed after its client had given up": {
        "cases_histories": [
            "c05_a_request_that_was_given_up_may_still_be_executed",
            "c05_recorded_as_failed_it_is_an_aborted_read",
            "c05_a_lock_that_was_taken_by_a_request_given_up",
        ],
        "kill_stores": [
            "a_frozen_server_executes_the_request_of_a_client_that_gave_up",
        ],
    },
    "C06 hand-off overlap is legal": {
        "cases_histories": [
            "c06_the_next_owner_may_be_told_before_the_last_one_was",
        ],
    },
    "C08 wrong outcome class": {
        "cases_histories": [
            "c08_the_class_of_an_error_decides",
        ],
    },
    "C11 a wall-clock jump ends locks": {
        "cases_histories": [
            "c11_a_jump_of_the_servers_clock_ends_a_lock_of_60_s_at_once",
        ],
        "clock_real": [
            "c11_a_forward_jump_of_valkeys_clock_past_the_ttl_is_a_duplicate_grant",
        ],
        "targets_redlock": [
            "c11_the_clock_of_one_server_jumps_and_both_hold_a_majority",
        ],
    },
    "C13 valid because nothing happened": {
        "cases_histories": [
            "c13_a_history_in_which_nothing_succeeded_is_no_pass",
            "c13_nor_is_one_that_holds_only_the_faults",
        ],
    },
    "C15 a partition lets old connections through": {
        "cases_runs": [
            "c15_a_partition_that_lets_old_connections_through_is_not_effective",
        ],
        "partition_live": [
            "the_probe_sees_an_old_connection_that_goes_on",
            "one_direction_is_cut_for_datagrams_old_and_new_connections_and_comes_back",
        ],
        "partition_fault": [
            "one_pair_that_leaks_is_no_partition",
        ],
    },
    "C16 the tool was killed, its fault stays": {
        "sandbox": [
            "nothing_is_left_after_sigkill_during_a_pause",
            "heal_continues_exactly_the_process_that_a_dead_ledger_names",
        ],
    },
    "C18 two equal rules, one removed": {
        "cases_runs": [
            "c18_c19_an_undo_that_fails_is_named_and_stops_no_other",
        ],
        "partition_live": [
            "cuts_of_several_owners_add_up_and_each_is_removed_once_and_gone",
        ],
    },
    "C19 undo skipped, success reported": {
        "cases_runs": [
            "c18_c19_an_undo_that_fails_is_named_and_stops_no_other",
        ],
        "sandbox": [
            "an_interrupted_run_heals_judges_and_exits_130",
        ],
    },
    "C21 a pause that is not there yet": {
        "cases_runs": [
            "c21_a_pause_holds_when_every_thread_of_the_tree_is_stopped",
        ],
        "targets_postgres_runs": [
            "a_jump_of_the_servers_clock_ends_a_lease_and_a_pause_stops_every_session",
        ],
    },
    "C22 histories that are not histories": {
        "workloads_verdict": [
            "c22_histories_that_are_none_raise",
            "c22c_the_completions_value_counts",
        ],
    },
    "C32 the sleeping owner writes": {
        "cases_histories": [
            "c32a_without_a_fence_the_sleeper_overwrites_the_new_owner",
            "c32b_with_a_fence_it_is_refused_and_that_is_a_pass",
        ],
        "quick_suite": [
            "the_quick_suite_comes_out_as_expected",
        ],
    },
    "C34 the node forgot the fence": {
        "cases_histories": [
            "c34_a_node_that_forgot_that_it_was_fenced",
        ],
        "kill_stores": [
            "a_store_that_forgets_its_fence_obeys_a_stale_owner_after_a_crash",
        ],
        "amnesia": [
            "a_lock_server_gives_old_tokens_again_and_a_store_loses_what_it_took",
        ],
    },
    "C35 Redlock: a second majority": {
        "targets_redlock": [
            "c35_a_restart_that_forgets_lets_a_second_majority_form",
        ],
    },
    "C46, C49 released by somebody who never held it": {
        "workloads_grants": [
            "c46_c49_a_release_or_renewal_by_a_stranger_is_forged",
        ],
        "authority": [
            "who_holds_somebody_elses_token_can_give_back_the_lock",
        ],
    },
    "C55, C62 a flag that outlives the session": {
        "cases_histories": [
            "c55_c62_a_flag_that_outlives_the_session",
        ],
        "cases_runs": [
            "c62_a_flag_that_outlives_the_session_is_told_with_seconds",
        ],
        "partition_real": [
            "a_holder_cut_from_the_lock_service_only_writes_on_and_learns_too_late",
        ],
        "targets_postgres_runs": [
            "c55_a_leader_whose_session_is_gone_stays_leader",
        ],
        "targets_postgres": [
            "a_terminated_session_gives_its_lock_away_and_tells_nobody",
        ],
        "targets_zookeeper_runs": [
            "c62_who_waits_for_a_word_about_the_session_learns_too_late",
        ],
    },
}


@cache
def functions(name: str) -> set[str]:
    """Return the names of the functions of a file."""
    tree = ast.parse((HERE / name).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("case", CASES)
def test_every_test_that_stands_for_a_case_exists(case: str) -> None:
    listed = [(file, name) for file, names in CASES[case].items() for name in names]
    assert listed
    for file, name in listed:
        assert f"test_{name}" in functions(f"test_{file}.py"), (file, name)
