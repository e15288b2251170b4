"""The killers of each mutant; ``python -m tests.mutants --record`` writes this file and the table in the docs."""

from __future__ import annotations

from typing import NamedTuple

from tests.mutants.killers import Case, Exploration, Schedule, Seed

__all__ = ["RECORDS", "Record"]


class Record(NamedTuple):
    """A mutant, its quickest killer, and the finding of that; run by the suite.

    ``seed`` is a seed of the simulator that finds it, too, and ``violated`` the broken invariant; ``make mutants``
    hunts those. None = the simulator is not tried.
    """

    mutant: str
    killer: Schedule | Exploration | Case
    found: str = ""
    seed: Seed | None = None
    violated: str = ""


RECORDS: tuple[Record, ...] = (
    Record(
        "history-first",
        Schedule("episodes", 0),
        "HistoryTrue",
        Seed("diverging tails", 1),
        "a node fails only when its disk does",
    ),
    Record(
        "strictly-advertised",
        Schedule("figure 8", 42),
        "ContradictionError",
        Seed("fallen leaders", 47),
        "LeaderComplete",
    ),
    Record("announce-early", Schedule("even", 0), "AnnouncedDurable", Seed("drawn", 1), "CommitOnQuorum"),
    Record("vote-before-durable", Schedule("even", 0), "VoteDurable", Seed("drawn", 2), "VoteDurable"),
    Record("count-before-sync", Schedule("even", 5), "CommitOnQuorum", Seed("drawn", 1), "CommitOnQuorum"),
    Record("acknowledge-before-sync", Schedule("even", 0), "AckDurable", Seed("drawn", 2), "AckDurable"),
    Record("compare-lengths", Schedule("pairs", 3), "LeaderComplete", Seed("fallen leaders", 4), "LeaderComplete"),
    Record("append-unannounced", Schedule("old messages", 0), "HistoryTrue", Seed("drawn", 3), "HistoryTrue"),
    Record("append-of-older-term", Schedule("sync only", 10), "AssertionError", Seed("late appends", 1), "HistoryTrue"),
    Record("announcement-of-older-term", Schedule("sync only", 21), "NeverCut", Seed("late appends", 8), "AckDurable"),
    Record("trust-the-point", Schedule("quiet disk", 57), "AckKept", Seed("late messages", 1), "AckKept"),
    Record(
        "completion-by-index-uncounted",
        Schedule("snapshots", 7),
        "CursorsOrdered",
        Seed("diverging tails", 3),
        "DurableIsDurable",
    ),
    Record(
        "completion-by-record",
        Case("tests/consensus/test_durable.py::test_a_completion_that_outlives_a_truncation_acknowledges_nothing"),
    ),
    Record(
        "resume-term",
        Case("tests/consensus/test_election.py::test_a_restarted_leader_never_goes_on_in_its_stored_term"),
        "",
        Seed("fallen leaders", 0),
        "Liveness",
    ),
    Record("extend-stored-history", Schedule("figure 8", 3), "PeerError"),
    Record("commit-unannounced", Schedule("old messages", 23), "CommittedStays"),
    Record(
        "votes-acknowledge",
        Case("tests/consensus/test_commit.py::test_the_end_in_a_vote_response_is_no_acknowledgement"),
        "",
        Seed("diverging tails", 1),
        "CommitOnQuorum",
    ),
    Record(
        "commit-by-counting",
        Case("tests/consensus/test_commit.py::test_a_long_divergent_log_does_not_count_before_it_was_cut"),
        "",
        Seed("fallen leaders", 1),
        "CommitOnQuorum",
    ),
    Record(
        "accept-another-disk",
        Case(
            "tests/node/test_pool.py::test_a_learner_with_another_disk_is_refused_as_it_may_be_a_voter_elsewhere_already"
        ),
        "",
        Seed("drawn", 20),
        "members keep the rules",
    ),
    Record(
        "promote-in-place",
        Case(
            "tests/consensus/test_changes.py::test_a_member_that_has_lost_something_is_recovering_until_it_holds_its_old_pair_again"
        ),
    ),
    Record("forget-recovery", Schedule("damage", 1), "NeverCut", Seed("rotten disks", 0), "NeverCut"),
    Record("recovering-until-committed", Schedule("damage of five", 0), "AckKept", Seed("rotten disks", 0), "NeverCut"),
    Record(
        "install-by-header",
        Case(
            "tests/node/test_recovery.py::test_an_empty_log_behind_a_snapshot_is_accepted_only_with_the_snapshots_history"
        ),
        "",
        Seed("short logs", 1),
        "CommittedStays",
    ),
    Record(
        "keep-history-at-install",
        Case(
            "tests/consensus/test_snapshots.py::test_a_member_behind_the_begin_of_the_log_gets_the_snapshot_and_then_the_log"
        ),
        "",
        Seed("short logs", 1),
        "CommittedStays",
    ),
    Record("keep-history-at-reset", Exploration("snapped", 199), "HistoryTrue"),
    Record("common-prefix", Schedule("snapshots", 1), "no progress"),
    Record("change-unguarded", Schedule("changes of five", 25), "LeaderComplete"),
    Record(
        "drop-before-durable",
        Case(
            "tests/integration/test_snapshot_steps.py::test_a_power_cut_at_any_step_of_taking_a_snapshot_and_dropping_the_log_loses_nothing"
        ),
        "",
        Seed("short logs", 1),
        "CommittedIsDurable",
    ),
    Record(
        "drop-what-topics-keep",
        Case(
            "tests/node/test_snapshot_choice.py::test_the_second_newest_is_the_base_so_that_the_newest_may_be_damaged"
        ),
        "",
        Seed("late answers", 1),
        "ReplayIsPossible",
    ),
    Record(
        "forget-results",
        Case("tests/streams/test_cut.py::test_a_machine_with_an_adopted_state_goes_on_exactly_like_the_original"),
        "",
        Seed("late answers", 6),
        "no StaleSessionError",
    ),
    Record(
        "forget-last-batch",
        Case("tests/streams/test_staging.py::test_staged_records_have_no_position_before_a_commit"),
        "",
        Seed("late commits", 1),
        "BatchWhole",
    ),
    Record(
        "abort-a-commit",
        Case("tests/streams/test_staging.py::test_an_abort_behind_a_commit_undoes_nothing"),
        "",
        Seed("late commits", 2),
        "BatchWhole",
    ),
    Record(
        "reset-without-recount",
        Case("tests/streams/test_staging.py::test_another_owner_is_refused_unless_it_resets"),
        "",
        Seed("late commits", 1),
        "BatchVisible",
    ),
    Record(
        "keep-leftovers",
        Case("tests/streams/test_staging.py::test_a_commit_drops_other_attempts_up_to_its_batch"),
        "",
        Seed("late commits", 1),
        "NothingLeftStaged",
    ),
    Record(
        "forget-staging",
        Case("tests/streams/test_staging.py::test_a_snapshot_at_any_moment_contains_the_sinks"),
        "",
        Seed("staged on short logs", 1),
        "a node fails only when its disk does",
    ),
    Record("forget-busy-sinks", Case("tests/streams/test_staging.py::test_a_sink_with_attempts_is_not_forgotten")),
    Record(
        "forget-idle-commits",
        Case("tests/streams/test_staging.py::test_two_copies_of_a_commit_in_the_log_have_one_effect"),
        "",
        Seed("staged on short logs", 11),
        "ReplayEqualsMembers",
    ),
    Record(
        "drop-what-is-staged",
        Case("tests/streams/test_staging.py::test_the_log_is_kept_for_staged_and_for_placed_records"),
        "",
        Seed("staged on short logs", 1),
        "ReplayIsPossible",
    ),
    Record(
        "drop-what-was-staged",
        Case("tests/streams/test_staging.py::test_the_log_is_kept_for_staged_and_for_placed_records"),
        "",
        Seed("staged on short logs", 0),
        "TopicsAreReadable",
    ),
    Record(
        "append-beside-a-commit",
        Case("tests/streams/test_staging.py::test_records_wait_while_a_commit_to_their_topic_is_being_decided"),
        "",
        Seed("late commits", 1),
        "a node fails only when its disk does",
    ),
    Record(
        "append-where-it-was",
        Case("tests/streams/test_staging.py::test_records_appended_behind_a_commit_go_on_where_it_ended"),
        "",
        Seed("late commits", 1),
        "a node fails only when its disk does",
    ),
    Record(
        "read-idle-commits",
        Case("tests/streams/test_staging.py::test_two_copies_of_a_commit_in_the_log_have_one_effect"),
        "",
        Seed("late commits", 1),
        "no PeerError",
    ),
    Record(
        "read-by-index",
        Case("tests/node/test_log_reader.py::test_a_topics_batches_come_in_order_and_without_those_of_others"),
        "",
        Seed("late commits", 1),
        "PositionsStay",
    ),
    Record(
        "read-at-the-staged-time",
        Case("tests/node/test_log_reader.py::test_a_topics_batches_come_in_order_and_without_those_of_others"),
        "",
        Seed("late commits", 1),
        "PositionsStay",
    ),
    Record(
        "completion-uncounted",
        Case("tests/consensus/test_durable.py::test_only_the_completion_of_its_own_writes_ends_the_installation"),
    ),
    Record(
        "count-new-voters-only",
        Case("tests/consensus/test_rules.py::test_rule_15_while_joint_the_majority_of_the_new_alone_commits_nothing"),
    ),
    Record("count-learners", Schedule("sizes", 5), "CommitOnQuorum"),
    Record(
        "leave-joint-early",
        Case("tests/consensus/test_rules.py::test_rule_15_a_joint_membership_is_left_only_when_it_is_committed"),
    ),
    Record(
        "commit-before-the-name",
        Case(
            "tests/consensus/test_standing.py::test_an_acknowledgement_does_not_count_for_a_commit_below_the_record_that_names_the_disk"
        ),
    ),
    Record("forget-vote", Case("tests/consensus/test_election.py::test_one_vote_in_a_term_also_after_a_restart")),
    Record(
        "cut-below-commit",
        Case("tests/consensus/test_announcement.py::test_an_announcement_again_cuts_nothing_and_is_harmless"),
    ),
    Record(
        "count-old-answers",
        Case("tests/consensus/test_rules.py::test_rule_6_answers_under_an_older_announcement_do_not_count"),
    ),
    Record(
        "take-commit-unbounded",
        Case("tests/consensus/test_commit.py::test_the_commit_index_is_the_leaders_as_far_as_the_own_log_reaches"),
    ),
    Record(
        "answer-while-installing",
        Case(
            "tests/consensus/test_announcement.py::test_until_truncation_and_history_are_durable_the_member_answers_nothing"
        ),
    ),
    Record("announce-by-memory", Schedule("snapshots", 79), "FollowsLeader"),
    Record(
        "refuse-a-vote-given",
        Case("tests/consensus/test_election.py::test_a_vote_is_repeated_even_after_the_voters_log_has_grown"),
    ),
    Record(
        "depose-who-is-heard",
        Case("tests/consensus/test_election.py::test_a_member_with_a_leader_gives_no_pre_vote_and_no_vote"),
    ),
    Record("lead-unheard", Case("tests/consensus/test_election.py::test_a_leader_without_answers_steps_down")),
    Record(
        "stand-at-a-loss",
        Case(
            "tests/consensus/test_election.py::test_a_member_that_loses_its_leader_writes_nothing_and_gives_its_vote_to_others"
        ),
    ),
    Record(
        "lose-anybody",
        Case(
            "tests/consensus/test_election.py::test_a_member_that_loses_its_leader_writes_nothing_and_gives_its_vote_to_others"
        ),
    ),
    Record(
        "stand-together",
        Case(
            "tests/consensus/test_election.py::test_members_that_lose_their_leader_campaign_one_after_another_and_learners_never"
        ),
    ),
    Record(
        "remember-full-ticks",
        Case(
            "tests/consensus/test_state.py::test_a_full_disk_deposes_the_leader_only_if_it_stays_full_without_a_break"
        ),
    ),
    Record(
        "stand-after-losing",
        Case(
            "tests/consensus/test_election.py::test_a_candidate_gives_up_exactly_when_no_further_answer_could_elect_it"
        ),
    ),
    Record("impatient", Case("tests/sim/test_liveness.py::test_slow_links_cost_a_few_terms_and_then_a_leader_stays")),
    Record("oversleep", Case("tests/consensus/test_quiet.py::test_a_leader_with_something_uncommitted_does_not_sleep")),
    Record(
        "stand-unread",
        Case(
            "tests/consensus/test_quiet.py::test_a_follower_wakes_before_its_election_timeout_and_waits_for_the_rest_tick_by_tick"
        ),
    ),
    Record(
        "lower-term-unanswered",
        Case(
            "tests/consensus/test_election.py::test_a_member_ahead_in_terms_and_a_leader_do_not_ignore_each_other_for_ever"
        ),
    ),
    Record(
        "pre-vote-takes-term",
        Case("tests/consensus/test_election.py::test_a_candidate_asks_for_votes_when_its_own_is_durable"),
    ),
    Record("learner-for-a-voter", Case("tests/consensus/test_changes.py::test_a_learner_never_counts")),
    Record(
        "departed-counts-itself",
        Case("tests/consensus/test_changes.py::test_a_removed_leader_does_not_count_itself"),
        "",
        Seed("changing members", 1),
        "CommitOnQuorum",
    ),
    Record(
        "departed-leads-on",
        Case(
            "tests/consensus/test_changes.py::test_a_removed_leader_leads_until_its_removal_is_committed_and_then_hands_over"
        ),
    ),
    Record(
        "depart-before-commit",
        Case(
            "tests/consensus/test_changes.py::test_a_removed_leader_leads_until_its_removal_is_committed_and_then_hands_over"
        ),
    ),
    Record(
        "promote-at-once", Case("tests/consensus/test_changes.py::test_a_learner_that_receives_nothing_is_not_promoted")
    ),
    Record(
        "promote-while-it-answers",
        Case(
            "tests/consensus/test_changes.py::test_no_learner_is_promoted_in_the_place_of_a_member_whose_disk_still_answers"
        ),
    ),
    Record(
        "gone-by-the-setting",
        Case("tests/consensus/test_changes.py::test_a_member_that_answers_slowly_keeps_its_place"),
    ),
    Record(
        "keep-a-cut-membership",
        Case("tests/consensus/test_rules.py::test_rule_15_a_membership_is_gone_the_moment_it_is_cut"),
    ),
    Record(
        "membership-from-commit",
        Case("tests/consensus/test_changes.py::test_while_joint_both_majorities_have_to_agree"),
        "",
        Seed("changing members", 2),
        "CommitOnQuorum",
    ),
    Record("two-changes", Case("tests/consensus/test_changes.py::test_one_change_at_a_time")),
    Record(
        "believe-any-vote",
        Case(
            "tests/consensus/test_changes.py::test_the_vote_of_a_disk_that_the_membership_does_not_name_is_not_counted"
        ),
    ),
    Record(
        "believe-any-disk",
        Case(
            "tests/consensus/test_changes.py::test_the_acknowledgements_of_a_member_count_only_if_a_record_names_its_disk"
        ),
    ),
    Record(
        "transfer-at-once",
        Case("tests/consensus/test_changes.py::test_a_transfer_waits_until_the_target_has_everything"),
    ),
    Record(
        "transfer-refused",
        Case(
            "tests/consensus/test_changes.py::test_a_transferred_leadership_passes_without_a_timeout_and_without_the_pre_vote"
        ),
    ),
    Record(
        "transfer-for-ever",
        Case("tests/consensus/test_changes.py::test_a_transfer_to_one_that_does_not_answer_is_given_up"),
    ),
    Record(
        "stand-for-anybody", Case("tests/consensus/test_changes.py::test_only_its_leader_can_make_a_member_campaign")
    ),
    Record("recovering-votes", Case("tests/consensus/test_rules.py::test_rule_17_a_recovering_member_answers_no_vote")),
    Record(
        "recovering-stands",
        Case(
            "tests/consensus/test_changes.py::test_a_member_that_has_lost_something_is_recovering_until_it_holds_its_old_pair_again"
        ),
    ),
    Record(
        "recovering-counts",
        Case("tests/consensus/test_changes.py::test_a_recovering_member_does_not_vote_and_does_not_count_for_commit"),
        "",
        Seed("rotten disks", 0),
        "CommitOnQuorum",
    ),
    Record(
        "recovering-confirms-reads",
        Case("tests/consensus/test_changes.py::test_a_recovering_member_that_takes_a_heartbeat_confirms_no_read"),
    ),
    Record(
        "recovering-until-leaders-end",
        Case(
            "tests/consensus/test_changes.py::test_a_member_that_has_lost_something_is_recovering_until_it_holds_its_old_pair_again"
        ),
    ),
    Record(
        "speak-before-stored",
        Case("tests/consensus/test_changes.py::test_nothing_counts_before_the_end_of_recovery_is_on_the_disk"),
    ),
    Record(
        "recovering-for-ever",
        Case(
            "tests/consensus/test_changes.py::test_a_joining_learner_that_is_recovering_without_a_known_end_is_helped_too"
        ),
    ),
    Record(
        "read-unconfirmed",
        Case("tests/consensus/test_reads.py::test_a_leader_answers_a_read_when_a_quorum_has_confirmed_it"),
        "",
        Seed("sleeping leaders", 3),
        "Linearizable",
    ),
    Record(
        "read-by-older-answer",
        Case("tests/consensus/test_reads.py::test_a_response_to_an_older_heartbeat_confirms_nothing"),
    ),
    Record(
        "read-before-term-start",
        Case("tests/consensus/test_reads.py::test_reads_before_the_term_start_is_reached_wait_and_are_not_refused"),
    ),
    Record(
        "lease-after-its-end",
        Case("tests/consensus/test_leases.py::test_a_lease_counts_from_the_beginning_of_the_round_and_ends"),
    ),
    Record(
        "promise-and-vote",
        Case("tests/consensus/test_leases.py::test_a_member_that_has_promised_grants_no_vote_before_the_promise_ends"),
    ),
    Record(
        "lease-after-transfer",
        Case("tests/consensus/test_leases.py::test_a_leader_that_hands_over_uses_no_lease_in_its_term_any_more"),
    ),
    Record(
        "forget-promise",
        Case(
            "tests/consensus/test_leases.py::test_a_member_that_starts_again_keeps_the_promise_of_its_earlier_process"
        ),
    ),
    Record(
        "forget-disks",
        Case("tests/node/test_pool.py::test_the_disk_of_a_peer_that_connected_before_it_was_a_member_is_recorded"),
    ),
    Record(
        "reborn-beside-the-old", Case("tests/node/test_pool.py::test_a_reborn_node_takes_the_place_of_its_latest_id")
    ),
    Record(
        "cut-before-the-pair",
        Case("tests/node/test_recovering_pair.py::test_the_pair_is_stored_before_any_log_file_changes"),
    ),
    Record("pair-of-what-is-left", Case("tests/node/test_refetch.py::test_a_stored_pair_survives_later_losses")),
    Record(
        "unknown-end-as-known",
        Case("tests/node/test_refetch.py::test_the_pair_is_the_one_that_the_node_may_have_advertised"),
    ),
    Record("take-any-term", Case("tests/node/test_refetch.py::test_batches_that_contradict_the_lost_ones_are_refused")),
    Record(
        "take-any-range", Case("tests/node/test_refetch.py::test_batches_that_contradict_the_lost_ones_are_refused")
    ),
    Record("skip-last-sealed", Case("tests/node/test_scrub.py::test_every_sealed_segment_is_read")),
    Record(
        "sync-again",
        Case("tests/wal/test_wal.py::test_a_failed_write_or_sync_is_final"),
        "",
        Seed("drawn", 5),
        "CommittedIsDurable",
    ),
    Record(
        "hint-before-entries",
        Case("tests/wal/test_recovery.py::test_the_commit_hint_on_disk_is_at_most_the_durable_end_before_the_group"),
    ),
    Record("hint-not-at-idle", Case("tests/wal/test_upkeep.py::test_a_log_that_becomes_idle_has_its_hint_stored_once")),
    Record(
        "hint-above-durable",
        Case("tests/wal/test_upkeep.py::test_a_commit_hint_above_the_log_is_cut_to_the_durable_end"),
    ),
    Record(
        "verdict-without-hint",
        Case(
            "tests/sim/test_lost_tail.py::test_a_member_that_lost_the_end_of_its_log_elects_no_leader_with_a_lagging_one"
        ),
    ),
    Record(
        "install-unmarked",
        Case(
            "tests/node/test_recovery.py::test_an_empty_log_behind_a_snapshot_is_accepted_only_with_the_snapshots_history"
        ),
    ),
    Record(
        "name-before-mark",
        Case(
            "tests/sim/test_interrupted_installation.py::test_a_death_after_the_file_has_its_name_is_finished_at_the_next_start"
        ),
    ),
    Record("accept-foreign", Case("tests/wal/test_log_id.py::test_a_segment_of_another_log_is_refused_by_name")),
    Record(
        "reuse-as-it-is",
        Case("tests/wal/test_trim.py::test_a_dropped_segment_is_overwritten_with_zeros_before_it_is_the_next_one"),
    ),
    Record(
        "read-recycled-as-new",
        Case("tests/wal/test_recovery.py::test_an_older_group_in_the_place_of_the_next_one_is_not_read_as_new"),
    ),
    Record(
        "cut-what-was-durable",
        Case("tests/wal/test_recovery.py::test_a_flip_below_a_later_groups_durable_field_is_damage"),
        "",
        Seed("rotten disks", 2),
        "NeverCut",
    ),
    Record("torn-is-damage", Case("tests/wal/test_recovery.py::test_the_unreadable_end_of_the_last_group_is_cut")),
    Record(
        "truncate-unclosed",
        Case("tests/wal/test_repair.py::test_damage_below_an_unfinished_truncation_is_no_torn_tail"),
    ),
    Record(
        "torn-beside-damage", Case("tests/replay/test_chain.py::test_learner_does_not_vote_but_provides_its_batches")
    ),
    Record(
        "believe-the-history",
        Case(
            "tests/node/test_recovery.py::test_a_history_that_contradicts_the_log_is_corruption_and_nothing_is_guessed"
        ),
    ),
    Record(
        "deny-when-deposed", Case("tests/node/test_deposed.py::test_callers_of_a_deposed_leader_get_outcome_unknown")
    ),
    Record(
        "give-uncommitted",
        Case(
            "tests/node/test_refetch.py::test_only_committed_batches_are_sent_and_trimmed_ones_are_reported_as_trimmed"
        ),
    ),
    Record(
        "remains-not-committed", Case("tests/node/test_salvage.py::test_batches_not_known_to_be_committed_are_not_sent")
    ),
    Record("take-rot", Case("tests/node/test_refetch.py::test_a_repair_skips_a_peer_that_sends_wrong_batches")),
    Record(
        "call-it-synced",
        Case("tests/wal/test_wal.py::test_the_order_of_reservation_is_the_order_on_disk_and_of_completion"),
        "",
        Seed("drawn", 1),
        "CommittedIsDurable",
    ),
    Record(
        "one-copy", Case("tests/wal/test_control_file.py::test_both_copies_hold_every_version_that_was_acknowledged")
    ),
    Record(
        "snapshot-unsynced",
        Case(
            "tests/integration/test_snapshot_steps.py::test_a_power_cut_at_any_step_of_taking_a_snapshot_and_dropping_the_log_loses_nothing"
        ),
    ),
    Record(
        "full-with-the-others",
        Case("tests/node/test_full.py::test_a_leader_is_full_before_followers_whose_logs_have_a_quarter_less_room"),
    ),
    Record(
        "followers-without-headers",
        Case(
            "tests/node/test_headroom.py::test_a_follower_that_writes_each_batch_alone_has_room_for_all_that_its_leader_admits"
        ),
    ),
    Record(
        "append-whole-or-not",
        Case("tests/node/test_full.py::test_of_the_batches_of_an_append_the_first_that_fit_are_taken"),
    ),
    Record(
        "age-by-last-word",
        Case(
            "tests/node/test_staleness.py::test_a_member_that_receives_heartbeats_but_cannot_answer_does_not_count_as_up_to_date"
        ),
    ),
    Record(
        "age-from-the-answer",
        Case("tests/node/test_staleness.py::test_an_age_counts_from_the_request_to_the_leader_and_not_from_its_answer"),
    ),
    Record(
        "stamp-unbounded",
        Case("tests/sim/test_clocks.py::test_a_leader_with_a_jumping_clock_does_not_delete_recent_records"),
    ),
    Record(
        "stamp-stands-still",
        Case(
            "tests/node/test_log_clock.py::test_log_time_goes_on_at_half_the_rate_while_it_is_ahead_and_so_the_lead_shrinks"
        ),
    ),
    Record(
        "stop-counts",
        Case("tests/node/test_ticker.py::test_a_process_that_was_stopped_counts_no_more_than_its_timer_was_set_for"),
    ),
    Record(
        "open-before-established",
        Case("tests/sim/test_groups.py::test_a_group_is_established_wherever_a_founder_dies_while_it_is_created[0]"),
    ),
    Record(
        "begin-as-the-founder",
        Case("tests/sim/test_groups.py::test_a_founder_that_lost_a_group_is_not_taken_for_the_founder_again"),
    ),
    Record(
        "believe-a-hello",
        Case("tests/node/test_moved_peers.py::test_a_member_that_names_a_newer_record_is_reached_at_its_new_address"),
    ),
    Record(
        "believe-an-old-record",
        Case("tests/node/test_moved_peers.py::test_nothing_else_redirects_answers[no-newer-record]"),
    ),
    Record(
        "never-look-for-the-moved",
        Case("tests/sim/test_groups.py::test_a_member_that_was_down_during_a_move_elects_with_the_moved_one"),
    ),
    Record(
        "report-before-durable",
        Case("tests/sim/test_groups.py::test_a_group_is_established_wherever_a_founder_dies_while_it_is_created[0]"),
    ),
    Record(
        "place-without-a-probe",
        Case("tests/node/test_placer.py::test_a_group_is_placed_only_when_each_member_has_answered"),
    ),
    Record(
        "spread-by-the-probe-of-groups",
        Case("tests/node/test_stream_topics.py::test_a_member_of_an_older_release_is_named_before_anything_is_written"),
    ),
    Record(
        "create-a-stream-by-a-client",
        Case("tests/node/test_stream_topics.py::test_a_client_creates_no_topic_in_another_group_than_0"),
    ),
    Record(
        "create-streams-at-their-record-only",
        Case("tests/sim/test_stream_topics.py::test_the_streams_are_created_wherever_a_leader_dies[16-True]"),
    ),
    Record(
        "remove-a-host",
        Case("tests/node/test_stream_topics.py::test_a_node_that_hosts_a_group_stays_a_member_of_group_0"),
    ),
    Record(
        "fit-for-every-answer",
        Case("tests/node/test_placer.py::test_a_member_that_refuses_the_version_runs_an_older_release"),
    ),
    Record(
        "snapshot-of-any-group", Case("tests/node/test_snapshot_store.py::test_a_snapshot_of_another_group_is_refused")
    ),
    Record(
        "remove-what-has-voted",
        Case("tests/node/test_cancelled.py::test_a_cancelled_directory_with_anything_else_stays_as_it_is"),
    ),
    Record(
        "remove-what-holds-records",
        Case("tests/node/test_cancelled.py::test_a_cancelled_directory_with_anything_else_stays_as_it_is"),
    ),
    Record(
        "remove-what-is-not-placed",
        Case(
            "tests/sim/test_groups.py::test_a_directory_of_a_cancelled_group_is_removed_at_the_next_start_unless_it_has_voted"
        ),
    ),
    Record(
        "name-by-numbers",
        Case(
            "tests/sim/test_groups.py::test_a_directory_of_a_cancelled_group_is_removed_at_the_next_start_unless_it_has_voted"
        ),
    ),
    Record(
        "expire-by-oneself",
        Case(
            "tests/streams/test_sessions.py::test_no_session_ends_before_its_record_because_of_a_members_own_settings"
        ),
    ),
    Record(
        "expire-what-is-used",
        Case("tests/streams/test_sessions.py::test_a_session_used_by_an_unapplied_batch_is_not_ended"),
    ),
    Record(
        "append-behind-the-end",
        Case("tests/streams/test_sessions.py::test_a_batch_never_enters_the_log_behind_the_end_of_its_session"),
    ),
    Record("use-only-here", Case("tests/streams/test_sessions.py::test_use_is_part_of_a_snapshot")),
    Record(
        "snapshot-without-sessions",
        Case("tests/streams/test_machine.py::test_a_restored_machine_goes_on_exactly_like_the_original"),
        "",
        Seed("late answers", 1),
        "a node fails only when its disk does",
    ),
    Record(
        "refuse-at-once",
        Case(
            "tests/streams/test_machine.py::test_an_append_at_a_taken_position_is_refused_by_a_record_after_the_one_that_took_it"
        ),
    ),
    Record(
        "fence-at-once",
        Case("tests/streams/test_machine.py::test_a_fenced_sequence_is_never_applied_and_the_next_one_goes_on"),
    ),
    Record(
        "expired-is-not-applied",
        Case("tests/client/test_client.py::test_the_outcome_of_a_forgotten_session_is_expired"),
    ),
    Record(
        "retry-enters-again",
        Case("tests/streams/test_machine.py::test_a_retry_of_a_batch_that_is_still_in_the_log_waits_for_it"),
    ),
    Record(
        "take-a-second-disk",
        Case(
            "tests/streams/test_placement.py::test_a_second_disk_of_a_founder_is_refused_before_and_after_the_group_is_established"
        ),
    ),
    Record(
        "establish-by-majority",
        Case("tests/streams/test_placement.py::test_a_group_is_established_when_all_founders_have_a_disk_on_record"),
    ),
    Record(
        "cancel-what-is-established",
        Case("tests/streams/test_placement.py::test_a_placement_can_be_cancelled_until_it_is_established"),
    ),
    Record(
        "place-again-by-a-late-copy",
        Case("tests/streams/test_placement.py::test_a_late_copy_of_a_placement_does_not_place_a_cancelled_group_again"),
    ),
    Record(
        "forget-cancellations",
        Case("tests/streams/test_placement.py::test_a_second_copy_of_a_cancellation_changes_nothing"),
    ),
    Record(
        "snapshot-without-groups",
        Case(
            "tests/streams/test_placement.py::test_a_snapshot_has_the_groups_and_older_releases_can_read_one_without_any"
        ),
    ),
    Record(
        "change-groups-by-a-late-copy",
        Case(
            "tests/streams/test_spread.py::test_a_second_copy_finds_the_topic_and_a_late_one_does_not_change_its_groups"
        ),
    ),
    Record(
        "two-topics-of-a-name",
        Case(
            "tests/streams/test_spread.py::test_an_earlier_release_sees_no_spread_topic_and_cannot_create_one_of_the_name"
        ),
    ),
    Record(
        "stream-of-two-groups",
        Case("tests/streams/test_spread.py::test_a_stream_of_a_spread_topic_belongs_to_no_other_group"),
    ),
    Record(
        "spread-over-what-may-be-cancelled",
        Case("tests/streams/test_spread.py::test_bad_records_are_refused_with_their_values_and_change_nothing"),
    ),
    Record(
        "snapshot-without-spread-topics",
        Case(
            "tests/streams/test_spread.py::test_a_snapshot_has_the_topics_and_older_releases_can_read_one_without_any"
        ),
    ),
    Record(
        "slot-of-an-instance-by-hash",
        Case("tests/formats/test_slots.py::test_each_instance_of_an_actor_has_the_slot_that_it_always_had"),
    ),
    Record(
        "spread-an-actor-with-instances",
        Case("tests/streams/test_spread_actors.py::test_an_actor_with_an_instance_cannot_be_spread"),
    ),
    Record(
        "admit-behind-the-spreading",
        Case(
            "tests/streams/test_spread_actors.py::test_a_command_behind_the_record_in_the_log_waits_and_is_then_refused"
        ),
    ),
    Record(
        "call-what-another-group-owns",
        Case("tests/streams/test_spread_actors.py::test_a_group_carries_out_the_calls_of_its_instances_only"),
    ),
    Record(
        "read-what-another-group-owns",
        Case(
            "tests/streams/test_spread_actors.py::test_group_0_refuses_each_instance_of_a_spread_actor_and_creates_none"
        ),
    ),
    Record(
        "own-all-instances-after-one",
        Case("tests/streams/test_spread_actors.py::test_calls_of_instances_that_a_group_has_go_on_while_its_node_lags"),
    ),
    Record(
        "move-instances-by-a-late-copy",
        Case("tests/streams/test_spread_actors.py::test_an_actor_is_spread_by_one_record_and_a_copy_finds_it"),
    ),
    Record(
        "call-group-0-only",
        Case("tests/sim/test_spread_actors.py::test_a_node_that_lags_is_not_believed_that_an_actor_is_not_spread"),
    ),
    Record(
        "snapshot-without-spread-actors",
        Case(
            "tests/streams/test_spread_actors.py::test_a_snapshot_has_the_actors_and_older_releases_can_read_one_without_any"
        ),
    ),
    Record(
        "share-a-busy-leaders-heartbeats",
        Case("tests/consensus/test_quiet.py::test_heartbeats_of_a_leader_with_unacknowledged_records_are_not_shared"),
    ),
    Record(
        "share-a-busy-followers-heartbeats",
        Case("tests/consensus/test_quiet.py::test_responses_of_a_follower_with_uncommitted_records_are_not_shared"),
    ),
    Record(
        "share-the-first-connection",
        Case("tests/sim/test_beats.py::test_a_connection_that_loses_everything_costs_no_idle_group_its_leader"),
    ),
    Record(
        "believe-the-carrier-of-a-beat",
        Case("tests/node/test_beats.py::test_a_heartbeat_of_another_disk_ends_the_connections_of_its_group"),
    ),
    Record(
        "read-beats-everywhere",
        Case("tests/node/test_beats.py::test_a_node_that_only_asks_to_join_may_send_no_heartbeats_of_other_groups"),
    ),
    Record(
        "beat-always", Case("tests/consensus/test_quiet.py::test_a_beat_of_a_busy_leader_or_a_follower_has_no_effect")
    ),
    Record("beat-wakes-twice", Case("tests/sim/test_beats.py::test_the_timers_of_idle_followers_do_not_fire")),
    Record("beat-keeps-the-timer", Case("tests/node/test_ticker.py::test_a_plan_that_moves_the_timer_sets_it_later")),
    Record(
        "commands-unchecked", Case("tests/streams/test_tokens.py::test_commands_need_the_right_to_call_their_actor")
    ),
    Record(
        "trim-by-everyone",
        Case("tests/streams/test_tokens.py::test_records_without_a_session_need_the_right_that_the_table_names"),
    ),
    Record(
        "revoked-is-valid",
        Case("tests/streams/test_tokens.py::test_a_revoked_token_may_do_nothing_and_still_gets_its_receipts"),
    ),
    Record(
        "prefix-for-every-name",
        Case("tests/wire/test_access.py::test_a_pattern_without_a_star_covers_exactly_its_own_name"),
    ),
    Record(
        "expiry-ignored",
        Case("tests/streams/test_tokens.py::test_a_token_expires_by_log_time_and_the_leader_writes_a_record_for_it"),
    ),
    Record(
        "id-is-enough",
        Case("tests/streams/test_tokens.py::test_records_without_a_session_need_the_right_that_the_table_names"),
    ),
    Record("audit-for-everyone", Case("tests/streams/test_tokens.py::test_reads_need_the_right_on_the_topic")),
    Record("sessions-for-everyone", Case("tests/streams/test_tokens.py::test_a_session_is_of_no_use_to_another_token")),
    Record(
        "waiting-unchecked",
        Case("tests/node/test_tokens.py::test_a_read_that_waits_is_denied_once_its_token_is_revoked"),
    ),
    Record("denied-at-once", Case("tests/node/test_tokens.py::test_a_node_without_a_majority_denies_nothing")),
    Record(
        "outcome-for-everyone",
        Case("tests/node/test_tokens.py::test_a_log_without_room_gives_the_outcome_of_a_batch_to_its_owner_only"),
    ),
    Record(
        "old-copy-revives",
        Case("tests/streams/test_tokens.py::test_a_late_copy_of_its_creation_does_not_bring_a_token_back"),
    ),
    Record(
        "proof-without-target",
        Case("tests/node/test_tokens.py::test_a_proof_of_the_directory_is_good_for_one_connection_and_one_node"),
    ),
    Record(
        "age-of-tokens-ignored",
        Case(
            "tests/sim/test_tokens_in_groups.py::test_a_node_that_cannot_know_of_a_revocation_permits_nothing_after_the_stated_time"
        ),
    ),
    Record(
        "groups-have-own-tokens",
        Case("tests/streams/test_tokens.py::test_a_stream_needs_the_right_on_its_topic_by_the_tokens_of_group_0"),
    ),
    Record(
        "right-on-the-stream",
        Case("tests/streams/test_tokens.py::test_a_stream_needs_the_right_on_its_topic_by_the_tokens_of_group_0"),
    ),
    Record(
        "ended-token-fences-nothing",
        Case("tests/streams/test_tokens.py::test_the_outcome_of_a_batch_of_an_ended_token_is_fenced_in_a_group"),
    ),
    Record(
        "transfer-unnoted",
        Case("tests/node/test_tokens_in_groups.py::test_an_administrator_moves_leaders_and_the_audit_log_has_it_first"),
    ),
    Record(
        "replay-counts-recovering",
        Case("tests/replay/test_votes.py::test_a_member_that_lost_a_part_of_its_log_does_not_vote"),
    ),
    Record(
        "replay-counts-reborn",
        Case("tests/replay/test_votes.py::test_a_member_that_lost_its_disk_has_no_vote_under_its_old_id"),
    ),
    Record("replay-counts-half", Case("tests/replay/test_votes.py::test_a_joint_membership_needs_both_majorities")),
    Record(
        "replay-takes-uncommitted",
        Case("tests/replay/test_chain.py::test_no_batch_below_a_gap_is_taken_that_no_member_knew_to_be_committed"),
    ),
    Record(
        "replay-misses-silently",
        Case("tests/replay/test_visible.py::test_kept_records_below_a_log_that_begins_at_its_snapshot_are_missed"),
    ),
    Record(
        "leave-groups-behind",
        Case("tests/fork/test_fork.py::test_a_fork_names_the_groups_that_it_leaves_behind_on_other_machines"),
    ),
    Record(
        "replay-shows-both-sides-of-a-hole",
        Case(
            "tests/sim/test_archives.py::test_a_reader_gets_each_record_once_where_the_log_divides_them_otherwise_than_a_run[11]"
        ),
    ),
    Record(
        "log-that-raises",
        Case("tests/node/test_fail_stop.py::test_a_group_works_with_a_log_stream_that_cannot_be_written"),
    ),
    Record(
        "limit-by-oneself",
        Case("tests/streams/test_commands.py::test_the_limit_of_a_result_is_the_leaders_and_travels_with_the_batch"),
    ),
    Record(
        "read-anything-first", Case("tests/node/test_crowd.py::test_before_a_hello_nothing_larger_than_a_hello_is_read")
    ),
    Record(
        "ask-removed-members",
        Case("tests/node/test_refetch.py::test_a_repair_does_not_wait_for_a_member_that_was_removed_meanwhile"),
    ),
    Record(
        "grow-without-snapshot",
        Case(
            "tests/integration/test_bounded_log.py::test_a_log_that_grew_while_no_snapshot_could_be_taken_goes_on_by_itself"
        ),
    ),
    Record("log-before-failed", Case("tests/node/test_fail_stop.py::test_failed_is_set_before_anything_is_logged")),
    Record(
        "dead-without-leader", Case("tests/node/test_health.py::test_node_without_a_majority_is_alive_and_not_ready")
    ),
    Record(
        "refuse-because-of-others",
        Case("tests/node/test_shares.py::test_appends_of_a_group_without_answers_leave_the_others_their_share"),
    ),
    Record(
        "take-the-shares-of-others",
        Case("tests/node/test_shares.py::test_appends_of_a_group_without_answers_leave_the_others_their_share"),
    ),
    Record(
        "crowd-out-a-group", Case("tests/node/test_crowd.py::test_surplus_connections_of_peers_keep_no_only_link_out")
    ),
    Record(
        "share-nothing",
        Case("tests/node/test_shares.py::test_the_groups_of_a_node_divide_its_memory_and_its_scrub_rate"),
    ),
    Record(
        "hold-every-probe", Case("tests/node/test_health.py::test_connections_that_send_nothing_do_not_hide_the_node")
    ),
    Record(
        "trust-found-directories",
        Case(
            "tests/host/test_disk.py::test_a_directory_whose_name_a_dead_process_did_not_sync_is_synced_by_the_next_one"
        ),
    ),
    Record(
        "end-with-the-first-thread",
        Case("tests/local/test_process.py::test_a_process_has_not_ended_while_one_of_its_threads_keeps_its_files_open"),
    ),
    Record(
        "lose-sight-of-a-dying-node",
        Case("tests/local/test_process.py::test_a_process_has_not_ended_while_one_of_its_threads_keeps_its_files_open"),
    ),
    Record(
        "ask-anybody",
        Case(
            "tests/client/test_roster.py::test_a_leader_at_an_address_that_the_directory_does_not_have_is_sent_nothing"
        ),
    ),
    Record(
        "forget-identities",
        Case("tests/local/test_cluster.py::test_target_expects_the_node_and_incarnation_of_the_files_at_each_address"),
    ),
    Record(
        "do-not-wait-for-streams",
        Case("tests/node/test_stream_readers.py::test_a_stream_that_its_group_has_not_created_yet_is_no_unknown_topic"),
    ),
    Record(
        "take-a-copy", Case("tests/client/test_roster.py::test_a_node_that_runs_on_a_copy_of_the_directory_is_refused")
    ),
    Record(
        "count-any-process", Case("tests/local/test_copied.py::test_start_does_not_count_the_processes_of_the_original")
    ),
    Record(
        "back-off-for-ever",
        Case(
            "tests/client/test_lost_session.py::test_appends_continue_after_their_session_has_lost_acknowledged_batches"
        ),
    ),
    Record("ask-again-for-what-is-final", Case("tests/client/test_reactions.py::test_a_request_to_any_node")),
    Record(
        "abort-for-all",
        Case("tests/client/test_links.py::test_closing_one_among_many_in_mid_append_fails_its_calls_alone"),
    ),
    Record("distrust-all", Case("tests/client/test_connection.py::test_a_wrong_answer_cuts_off_its_own_session_only")),
    Record(
        "share-for-ever",
        Case("tests/client/test_links.py::test_a_server_that_closes_on_one_bad_request_harms_its_session_alone"),
    ),
    Record(
        "keep-a-dead-link",
        Case("tests/client/test_connection.py::test_a_link_on_which_nothing_comes_any_more_ends_for_all"),
    ),
    Record(
        "keep-no-place",
        Case("tests/client/test_connection.py::test_one_session_cannot_use_up_the_requests_that_a_node_lets_wait"),
    ),
    Record(
        "forget-the-first-copy",
        Case("tests/client/test_simulated.py::test_a_group_that_an_earlier_copy_may_have_placed_is_an_unknown_outcome"),
    ),
    Record(
        "one-sequence-for-all-groups",
        Case("tests/sim/test_client_of_groups.py::test_a_group_without_a_majority_delays_no_other"),
    ),
    Record("ask-group-0", Case("tests/sim/test_client_of_groups.py::test_another_client_asks_the_group_of_a_token")),
    Record(
        "end-used-parts",
        Case(
            "tests/sim/test_client_of_groups.py::test_the_parts_for_a_group_end_some_time_after_the_last_call_and_come_back"
        ),
    ),
    Record(
        "trust-the-record-of-the-group",
        Case(
            "tests/sim/test_client_of_groups.py::test_a_client_of_a_group_learns_the_new_address_of_a_member_that_has_moved"
        ),
    ),
    Record("slot-by-hash", Case("tests/formats/test_slots.py::test_each_key_has_the_slot_that_it_always_had")),
    Record(
        "divide-a-numbered-batch",
        Case("tests/client/test_spread_appends.py::test_a_batch_whose_answer_was_lost_is_written_once_and_whole"),
    ),
    Record(
        "believe-a-lagging-node",
        Case("tests/client/test_spread_appends.py::test_a_node_that_lags_is_not_believed_that_there_is_no_such_topic"),
    ),
    Record(
        "go-by-the-first-key",
        Case(
            "tests/client/test_spread_appends.py::test_an_atomic_append_has_one_stream_or_is_refused_before_anything_is_sent"
        ),
    ),
    Record(
        "wake-without-order",
        Case(
            "tests/trio/test_spread.py::test_appends_that_wait_for_the_route_of_their_topic_stand_in_the_order_of_the_calls"
        ),
    ),
    Record("never-grow", Case("tests/client/test_unsent.py::test_a_full_batch_grows_while_the_leader_is_far_away")),
    Record(
        "grow-commands", Case("tests/client/test_unsent.py::test_batches_of_commands_and_of_a_near_leader_do_not_grow")
    ),
    Record(
        "start-anywhere",
        Case(
            "tests/node/test_address_check.py::test_a_voter_at_an_unrecorded_address_is_refused_and_continues_at_the_recorded_one"
        ),
    ),
    Record(
        "believe-changed-settings",
        Case(
            "tests/node/test_address_check.py::test_settings_that_contradict_the_record_since_the_last_start_are_refused"
        ),
    ),
    Record("take-from-anybody", Case("tests/sim/test_stranger.py::test_frames_of_a_stranger_change_nothing")),
    Record(
        "offer-by-anybody", Case("tests/consensus/test_refused.py::test_an_offer_of_another_than_the_leader_is_refused")
    ),
    Record(
        "greet-without-a-proof",
        Case("tests/node/test_pool.py::test_a_peer_that_proves_that_it_knows_this_disk_is_taken_for_a_member"),
    ),
    Record("leap-terms", Case("tests/consensus/test_refused.py::test_a_term_that_leaps_is_not_taken")),
    Record("join-while-heard", Case("tests/node/test_pool.py::test_a_member_that_still_answers_keeps_its_place")),
    Record("stop-at-a-broken-rule", Case("tests/node/test_strangers.py::test_a_second_leader_of_a_term_stops_no_node")),
    Record(
        "no-running-mark",
        Case("tests/sim/test_interval.py::test_one_power_loss_and_two_partitions_lose_nothing_and_stop_no_member"),
    ),
    Record(
        "mark-cleared-before-sync",
        Case("tests/sim/test_interval.py::test_a_power_cut_at_any_call_of_a_clean_stop_is_noticed"),
    ),
    Record(
        "count-recovering-votes",
        Case("tests/sim/test_interval.py::test_one_power_loss_and_two_partitions_lose_nothing_and_stop_no_member"),
    ),
    Record(
        "wait-for-unnamed",
        Case(
            "tests/consensus/test_standing.py::test_after_a_power_loss_no_election_waits_for_a_disk_that_no_record_names"
        ),
    ),
    Record(
        "commit-by-an-older-name",
        Case(
            "tests/explore/test_explore.py::test_a_name_in_a_record_of_an_older_term_commits_nothing_that_a_power_loss_takes"
        ),
    ),
    Record(
        "end-of-another-life",
        Case("tests/consensus/test_power_loss.py::test_the_end_of_a_leader_counts_for_the_life_that_asked_only"),
    ),
    Record(
        "cut-instead-of-set-aside",
        Case(
            "tests/sim/test_interval.py::test_after_the_wait_a_majority_continues_with_a_warning_and_the_absent_member_sets_its_log_aside"
        ),
    ),
    Record(
        "lose-names",
        Case("tests/wal/test_interval.py::test_a_batch_that_gives_out_a_name_is_complete_when_it_is_durable"),
    ),
    Record(
        "judge-at-once",
        Case(
            "tests/node/test_digests.py::test_a_leader_that_stalls_between_two_reports_stops_no_member_with_the_right_state"
        ),
    ),
    Record(
        "confirm-by-old-agreements",
        Case(
            "tests/node/test_digests.py::test_a_member_that_agreed_before_the_command_that_differed_does_not_confirm_the_leaders_state"
        ),
    ),
    Record(
        "backup-of-a-late-member",
        Case("tests/sim/test_backups.py::test_a_backup_holds_what_was_acknowledged_and_nothing_else[short logs-4]"),
    ),
    Record(
        "backup-joins-blindly",
        Case("tests/backup/test_create.py::test_a_cluster_that_lost_committed_records_does_not_add_to_the_target"),
    ),
    Record(
        "backup-names-first",
        Case("tests/sim/test_backups.py::test_a_power_cut_at_any_call_leaves_whole_backups_and_the_next_one_goes_on"),
    ),
    Record(
        "backup-prunes-objects-first",
        Case("tests/sim/test_backups.py::test_a_power_cut_at_any_call_leaves_whole_backups_and_the_next_one_goes_on"),
    ),
    Record(
        "backup-believes-digests",
        Case("tests/backup/test_damage.py::test_a_damaged_object_is_named_and_a_full_backup_does_without_it"),
    ),
    Record("backup-shows-incarnations", Case("tests/backup/test_create.py::test_a_backup_has_no_incarnation")),
    Record(
        "restore-cuts-too-late",
        Case("tests/backup/test_damage.py::test_a_cut_before_the_oldest_or_after_the_newest_backup_is_refused"),
    ),
    Record(
        "backup-verifies-nothing",
        Case("tests/backup/test_damage.py::test_a_damaged_object_is_named_and_a_full_backup_does_without_it"),
    ),
    Record(
        "backup-groups-in-the-old-format",
        Case(
            "tests/backup/test_groups.py::test_a_release_before_refuses_the_manifest_and_those_without_groups_keep_the_old_format"
        ),
    ),
    Record("backup-shows-founders", Case("tests/backup/test_groups.py::test_no_incarnation_of_a_group_is_in_a_backup")),
    Record(
        "backup-equal-founders",
        Case("tests/backup/test_groups.py::test_all_groups_of_stopped_nodes_are_restored_with_one_order"),
    ),
    Record(
        "restore-group-0-alone",
        Case("tests/backup/test_groups.py::test_all_groups_of_stopped_nodes_are_restored_with_one_order"),
    ),
    Record(
        "backup-cuts-nothing",
        Case("tests/streams/test_joint_cut.py::test_the_cut_of_a_backup_at_any_moment_contradicts_nothing"),
    ),
    Record(
        "backup-cuts-at-the-version",
        Case("tests/streams/test_joint_cut.py::test_the_cut_of_a_backup_at_any_moment_contradicts_nothing"),
    ),
    Record(
        "backup-cuts-at-any-context",
        Case("tests/streams/test_joint_cut.py::test_the_cut_of_a_backup_at_any_moment_contradicts_nothing"),
    ),
    Record("peer-without-a-name", Case("tests/wire/test_certificate_names.py::test_another_certificate_is_refused")),
    Record("client-as-peer", Case("tests/wire/test_certificate_names.py::test_another_certificate_is_refused")),
    Record("member-as-another", Case("tests/wire/test_certificate_names.py::test_another_certificate_is_refused")),
    Record(
        "certificate-of-any-cluster", Case("tests/wire/test_certificate_names.py::test_another_certificate_is_refused")
    ),
    Record("server-of-any-name", Case("tests/host/test_tls.py::test_a_wrong_certificate_is_an_error_on_both_sides")),
    Record(
        "answer-under-any-name",
        Case("tests/wire/test_certificate_names.py::test_an_answer_under_another_name_is_refused"),
    ),
    Record(
        "first-of-two-names",
        Case(
            "tests/wire/test_certificate_names.py::test_a_certificate_without_exactly_one_well_formed_name_names_nothing"
        ),
    ),
    Record(
        "certificate-of-another-node", Case("tests/host/test_tls.py::test_the_certificate_of_another_node_is_refused")
    ),
    Record(
        "client-sends-messages", Case("tests/node/test_server.py::test_a_client_that_sends_a_peers_message_is_no_peer")
    ),
    Record("ordered-by-a-report", Case("tests/sim/test_ordered.py::test_the_order_survives_faults_and_lost_disks[6]")),
    Record("ordered-by-a-guess", Case("tests/sim/test_ordered.py::test_the_records_of_all_streams_are_ordered")),
    Record(
        "wait-lost-with-its-leader", Case("tests/sim/test_ordered.py::test_the_order_survives_faults_and_lost_disks[3]")
    ),
    Record(
        "wait-until-the-next-round",
        Case("tests/sim/test_ordered.py::test_a_caller_that_waits_is_not_kept_until_the_next_round"),
    ),
    Record("wait-for-nobody", Case("tests/node/test_ordered_appends.py::test_a_caller_that_goes_is_not_waited_for")),
    Record(
        "ordered-when-asked",
        Case("tests/sim/test_ordered.py::test_an_ordered_append_costs_an_order_more_than_a_durable_one_and_no_waiting"),
    ),
    Record(
        "order-not-told",
        Case("tests/sim/test_ordered.py::test_an_ordered_append_costs_an_order_more_than_a_durable_one_and_no_waiting"),
    ),
    Record(
        "deaf-to-orders",
        Case("tests/sim/test_ordered.py::test_an_ordered_append_costs_an_order_more_than_a_durable_one_and_no_waiting"),
    ),
    Record(
        "deaf-to-records",
        Case(
            "tests/node/test_ordered_reads.py::test_a_reader_waits_for_records_too_while_the_order_is_ahead_of_them_here"
        ),
    ),
    Record(
        "one-request-for-each-caller",
        Case("tests/node/test_ordered_appends.py::test_one_request_serves_all_callers_of_a_stream"),
    ),
    Record(
        "order-takes-shrunk",
        Case("tests/streams/test_order.py::test_any_history_of_reports_leaders_and_snapshots_keeps_the_invariants"),
    ),
    Record(
        "order-skips-a-position",
        Case("tests/streams/test_order.py::test_any_history_of_reports_leaders_and_snapshots_keeps_the_invariants"),
    ),
    Record(
        "forget-what-is-ordered",
        Case("tests/streams/test_order.py::test_any_history_of_reports_leaders_and_snapshots_keeps_the_invariants"),
    ),
    Record("forget-a-part", Case("tests/streams/test_order.py::test_only_runs_that_a_stream_has_are_forgotten")),
    Record(
        "context-above-the-map",
        Case("tests/streams/test_order.py::test_a_leader_that_lags_behind_group_0_gets_no_runs"),
    ),
    Record("add-known-runs", Case("tests/streams/test_order.py::test_a_run_that_the_map_has_is_skipped")),
    Record(
        "report-what-is-admitted",
        Case(
            "tests/node/test_ordering.py::test_the_records_of_all_streams_are_ordered_and_their_streams_keep_the_order"
        ),
    ),
    Record(
        "order-any-stream", Case("tests/streams/test_order.py::test_group_0_orders_the_streams_of_spread_topics_only")
    ),
    Record(
        "one-space-for-all-topics",
        Case("tests/streams/test_order.py::test_each_topic_has_global_positions_of_its_own_without_gaps"),
    ),
    Record(
        "report-from-anybody",
        Case(
            "tests/node/test_ordering.py::test_only_a_member_of_the_group_with_its_recorded_disk_reports_for_a_stream"
        ),
    ),
    Record(
        "map-without-its-end",
        Case("tests/streams/test_order.py::test_a_map_keeps_its_end_when_its_stream_is_trimmed_empty"),
    ),
    Record(
        "join-across-other-streams",
        Case(
            "tests/streams/test_order.py::test_runs_without_a_record_of_another_stream_between_them_are_one_run_of_the_map"
        ),
    ),
    Record(
        "refuse-parts",
        Case(
            "tests/streams/test_order.py::test_runs_without_a_record_of_another_stream_between_them_are_one_run_of_the_map"
        ),
    ),
    Record(
        "join-with-the-first-version",
        Case(
            "tests/streams/test_order.py::test_runs_without_a_record_of_another_stream_between_them_are_one_run_of_the_map"
        ),
    ),
    Record("order-without-versions", Case("tests/streams/test_order.py::test_the_order_is_restored_and_goes_on_alike")),
    Record("write-empty-orders", Case("tests/streams/test_order.py::test_an_order_without_effect_is_not_written")),
    Record(
        "order-beyond-64-bits",
        Case("tests/streams/test_order.py::test_a_false_report_leaves_a_state_that_can_be_loaded"),
    ),
    Record(
        "move-to-any-member",
        Case("tests/node/test_balance.py::test_leaders_are_balanced_and_moved_back_after_a_failure"),
    ),
    Record(
        "configure-by-a-late-copy",
        Case(
            "tests/streams/test_spread.py::test_a_spread_topic_is_configured_and_a_late_copy_does_not_undo_a_later_change"
        ),
    ),
    Record(
        "trim-beyond-the-order",
        Case("tests/streams/test_spread.py::test_a_spread_topic_is_trimmed_to_a_global_position_and_never_back"),
    ),
    Record(
        "trim-back",
        Case("tests/streams/test_spread.py::test_a_spread_topic_is_trimmed_to_a_global_position_and_never_back"),
    ),
    Record(
        "trim-what-has-no-run",
        Case("tests/node/test_ordering.py::test_records_whose_global_position_is_not_known_in_their_group_stay"),
    ),
    Record(
        "configure-by-an-old-state",
        Case(
            "tests/node/test_stream_topics.py::test_a_leader_that_lags_behind_group_0_does_not_bring_an_earlier_retention_back"
        ),
    ),
    Record("admit-behind-the-seal", Case("tests/streams/test_sealing.py::test_a_group_admits_nothing_behind_the_seal")),
    Record(
        "admit-behind-an-admitted-seal",
        Case("tests/streams/test_sealing.py::test_a_group_admits_nothing_behind_the_seal"),
    ),
    Record(
        "seal-before-the-order",
        Case("tests/streams/test_sealing.py::test_a_stream_is_closing_and_then_sealed_at_its_ordered_end"),
    ),
    Record(
        "order-behind-the-seal",
        Case("tests/streams/test_sealing.py::test_nothing_of_a_sealed_stream_is_ordered_any_more"),
    ),
    Record(
        "report-a-seal-that-is-none", Case("tests/streams/test_sealing.py::test_a_group_admits_nothing_behind_the_seal")
    ),
    Record(
        "give-slots-away-early",
        Case("tests/streams/test_sealing.py::test_a_stream_is_closing_and_then_sealed_at_its_ordered_end"),
    ),
    Record(
        "overtake-what-is-undecided",
        Case(
            "tests/sim/test_sealing.py::test_a_route_with_another_sealed_stream_lets_no_append_overtake_one_without_an_outcome"
        ),
    ),
    Record(
        "begin-the-newest-first",
        Case(
            "tests/sim/test_sealing.py::test_a_route_with_another_sealed_stream_lets_no_append_overtake_one_without_an_outcome"
        ),
    ),
    Record(
        "lose-a-position-early",
        Case("tests/streams/test_sealing.py::test_a_lost_stream_ends_where_its_order_ends_when_the_record_is_applied"),
    ),
    Record(
        "lose-into-another",
        Case("tests/streams/test_sealing.py::test_a_closing_stream_is_lost_into_the_stream_of_its_seal"),
    ),
    Record(
        "lose-in-an-old-version",
        Case("tests/streams/test_sealing.py::test_a_snapshot_has_lost_streams_in_a_version_of_its_own"),
    ),
    Record(
        "pass-a-lost-stream-early",
        Case(
            "tests/sim/test_lost_streams.py::test_readers_pass_a_lost_stream_that_is_trimmed_and_one_that_waits_goes_on"
        ),
    ),
    Record(
        "never-pass-a-lost-stream",
        Case(
            "tests/sim/test_lost_streams.py::test_readers_pass_a_lost_stream_that_is_trimmed_and_one_that_waits_goes_on"
        ),
    ),
    Record(
        "give-up-a-living-group", Case("tests/sim/test_lost_streams.py::test_a_group_with_a_majority_is_not_given_up")
    ),
    Record(
        "keep-what-was-not-sent",
        Case(
            "tests/sim/test_lost_streams.py::test_appends_that_were_not_sent_to_the_lost_group_go_on_and_others_have_an_unknown_outcome"
        ),
    ),
    Record(
        "never-look-for-a-loss",
        Case(
            "tests/sim/test_lost_streams.py::test_appends_and_their_order_go_on_in_another_stream_without_the_lost_group"
        ),
    ),
    Record(
        "leave-reports-to-leaders",
        Case(
            "tests/sim/test_lost_streams.py::test_what_a_node_of_the_group_knows_is_counted_and_gets_its_position_when_the_node_can_report_it"
        ),
    ),
    Record(
        "drop-unknown-attempts",
        Case("tests/streams/test_spread_commits.py::test_a_part_stays_until_its_attempt_is_over_and_no_longer"),
    ),
    Record(
        "drop-committed-parts",
        Case("tests/streams/test_spread_commits.py::test_any_history_shows_each_batch_whole_or_not_at_all_and_once[0]"),
    ),
    Record(
        "report-placed-parts",
        Case("tests/streams/test_spread_commits.py::test_any_history_shows_each_batch_whole_or_not_at_all_and_once[0]"),
    ),
    Record(
        "place-in-any-order",
        Case("tests/streams/test_spread_commits.py::test_any_history_shows_each_batch_whole_or_not_at_all_and_once[0]"),
    ),
    Record(
        "release-apart",
        Case("tests/streams/test_spread_commits.py::test_an_order_that_would_show_a_part_of_a_batch_alone_is_refused"),
    ),
    Record(
        "seal-before-parts",
        Case(
            "tests/streams/test_spread_commits.py::test_a_stream_is_not_sealed_before_the_parts_that_are_sealed_in_its_group"
        ),
    ),
    Record(
        "parts-unprobed",
        Case(
            "tests/node/test_spread_sinks.py::test_a_member_of_an_earlier_release_and_a_wrong_group_get_no_record_about_parts"
        ),
    ),
    Record(
        "place-in-the-next-round",
        Case("tests/sim/test_spread_sinks.py::test_a_commit_and_the_appends_behind_it_wait_for_no_round"),
    ),
    Record(
        "report-in-the-next-round",
        Case("tests/sim/test_spread_sinks.py::test_a_commit_and_the_appends_behind_it_wait_for_no_round"),
    ),
    Record(
        "parts-have-an-age",
        Case("tests/streams/test_spread_commits.py::test_a_part_stays_until_its_attempt_is_over_and_no_longer"),
    ),
    Record("reader-skips", Case("tests/streams/test_cover.py::test_readers_of_any_nodes_see_one_order_without_holes")),
    Record(
        "read-trimmed-as-pending",
        Case("tests/client/test_merge.py::test_a_position_that_no_stream_has_was_trimmed_or_contradicts_the_order"),
    ),
    Record(
        "read-pending-as-trimmed",
        Case(
            "tests/client/test_merge.py::test_records_are_taken_in_the_order_of_their_positions_from_whichever_stream_has_them"
        ),
    ),
    Record(
        "hold-without-a-share",
        Case("tests/client/test_merge.py::test_a_lane_holds_its_share_while_another_stream_stands_still"),
    ),
    Record(
        "take-late-answers", Case("tests/client/test_merge.py::test_an_answer_that_was_asked_before_a_skip_is_dropped")
    ),
    Record(
        "cover-without-forgotten-runs",
        Case("tests/streams/test_cover.py::test_readers_of_any_nodes_see_one_order_without_holes"),
    ),
    Record(
        "cover-to-the-end-of-the-order",
        Case("tests/streams/test_cover.py::test_readers_of_any_nodes_see_one_order_without_holes"),
    ),
    Record(
        "cover-what-is-cut", Case("tests/streams/test_cover.py::test_readers_of_any_nodes_see_one_order_without_holes")
    ),
    Record(
        "send-large-batches-ahead",
        Case(
            "tests/node/test_ordered_reads.py::test_large_batches_are_read_one_at_a_time_and_what_was_trimmed_is_named"
        ),
    ),
    Record(
        "range-without-count",
        Case("tests/client/test_stream_ranges.py::test_a_range_is_complete_or_says_what_was_trimmed"),
    ),
    Record(
        "skip-trimmed-places",
        Case("tests/node/test_stream_ranges.py::test_what_was_trimmed_is_named_before_and_after_the_plan"),
    ),
    Record(
        "part-ends-early", Case("tests/node/test_stream_ranges.py::test_a_node_that_sends_other_records_is_an_error")
    ),
    Record(
        "trim-the-last-run",
        Case("tests/streams/test_cover.py::test_a_trim_of_an_idle_stream_hides_no_record_of_the_others"),
    ),
    Record(
        "fork-in-an-old-term",
        Case("tests/fork/test_fork.py::test_no_new_record_has_the_viewstamp_of_a_record_that_was_left_out"),
    ),
    Record(
        "fork-forgets-the-order",
        Case("tests/fork/test_groups.py::test_a_new_cluster_has_the_groups_with_their_logs_and_one_order"),
    ),
    Record(
        "fork-of-committed-groups",
        Case("tests/fork/test_groups.py::test_a_new_cluster_has_the_groups_with_their_logs_and_one_order"),
    ),
    Record(
        "fork-leaves-groups-in-place",
        Case("tests/fork/test_groups.py::test_a_new_cluster_has_the_groups_with_their_logs_and_one_order"),
    ),
    Record(
        "fork-with-the-old-disks",
        Case("tests/fork/test_fork.py::test_new_cluster_has_all_records_behind_a_new_identity"),
    ),
    Record(
        "fork-keeps-sessions",
        Case("tests/fork/test_new_cluster.py::test_new_cluster_serves_topics_and_actors_and_ends_the_old_sessions"),
    ),
    Record("fork-of-any-log", Case("tests/fork/test_fork.py::test_minority_is_refused_and_nothing_is_written")),
    Record(
        "fork-without-marks",
        Case("tests/fork/test_fork.py::test_death_at_each_disk_call_leaves_the_old_files_or_a_refused_directory"),
    ),
    Record(
        "start-on-half-a-fork",
        Case("tests/fork/test_new_cluster.py::test_node_does_not_start_on_a_directory_with_an_unfinished_fork"),
    ),
    Record(
        "recover-promises-everything",
        Case("tests/fork/test_loss.py::test_one_of_three_may_lack_acknowledged_records_above_its_log"),
    ),
    Record(
        "readdress-for-ever",
        Case("tests/fork/test_loss.py::test_addresses_of_an_operator_replace_those_of_memberships_up_to_a_generation"),
    ),
    Record("commit-after-drop", Case("tests/streams/test_runs.py::test_two_runs_of_the_same_positions_are_told_apart")),
    Record(
        "forget-before-drop",
        Case("tests/streams/test_runs.py::test_a_dropped_run_stays_known_until_it_is_forgotten_and_is_not_read"),
    ),
    Record(
        "drop-a-needed-run",
        Case("tests/streams/test_runs.py::test_deleted_records_are_not_archived_and_runs_of_deleted_records_go_first"),
    ),
    Record("two-runs-at-once", Case("tests/streams/test_runs.py::test_two_runs_of_the_same_positions_are_told_apart")),
    Record(
        "run-behind-a-gap",
        Case("tests/streams/test_runs.py::test_the_runs_of_a_topic_tile_and_the_archived_end_moves_by_commit_only"),
    ),
    Record(
        "run-over-a-run",
        Case("tests/streams/test_runs.py::test_the_runs_of_a_topic_tile_and_the_archived_end_moves_by_commit_only"),
    ),
    Record(
        "archive-what-is-deleted",
        Case("tests/streams/test_runs.py::test_deleted_records_are_not_archived_and_runs_of_deleted_records_go_first"),
    ),
    Record("commit-a-part", Case("tests/streams/test_runs.py::test_a_record_that_breaks_a_rule_is_refused_by_name")),
    Record(
        "read-while-prepared",
        Case("tests/streams/test_runs.py::test_only_a_committed_run_is_read_whatever_was_done_before_the_leader_died"),
    ),
    Record(
        "end-by-prepare",
        Case("tests/streams/test_runs.py::test_the_runs_of_a_topic_tile_and_the_archived_end_moves_by_commit_only"),
    ),
    Record(
        "commit-unread",
        Case("tests/node/test_archivist.py::test_a_store_that_lies_gets_no_commit"),
        "",
        Seed("failing stores", 5),
        "CommittedIsWhole",
    ),
    Record(
        "archive-unprobed",
        Case("tests/node/test_archivist.py::test_a_member_of_an_older_release_gets_no_record_about_runs"),
    ),
    Record(
        "probe-for-groups",
        Case("tests/node/test_archivist.py::test_a_member_of_an_older_release_gets_no_record_about_runs"),
    ),
    Record(
        "keep-prepared-runs",
        Case(
            "tests/node/test_archivist.py::test_a_node_that_dies_at_any_step_leaves_a_run_that_the_next_request_removes"
        ),
    ),
    Record(
        "forget-before-removal",
        Case("tests/node/test_archivist.py::test_runs_of_deleted_records_are_dropped_and_their_objects_removed"),
    ),
    Record(
        "write-when-deposed",
        Case(
            "tests/node/test_archivist.py::test_a_deposed_leader_leaves_an_orphan_and_never_changes_the_run_of_the_next_one"
        ),
    ),
    Record(
        "replace-objects", Case("tests/node/test_archivist.py::test_an_object_that_is_there_already_is_not_changed")
    ),
    Record("run-with-a-gap", Case("tests/archive/test_run_store.py::test_a_batch_that_is_not_the_next_one_is_refused")),
    Record(
        "end-falls-with-drop", Case("tests/streams/test_runs.py::test_the_catalogue_is_as_large_as_the_runs_that_live")
    ),
    Record(
        "remove-what-is-known",
        Case("tests/streams/test_runs.py::test_objects_are_orphans_if_no_record_will_ever_prepare_them"),
    ),
    Record(
        "remove-what-comes",
        Case("tests/streams/test_runs.py::test_objects_are_orphans_if_no_record_will_ever_prepare_them"),
    ),
    Record(
        "snapshot-without-runs",
        Case("tests/streams/test_runs.py::test_snapshots_of_a_cluster_without_runs_are_as_before"),
    ),
    Record(
        "fork-owns-the-objects",
        Case("tests/streams/test_runs.py::test_a_fork_reads_the_committed_runs_and_never_removes_their_objects"),
    ),
    Record(
        "log-dropped-at-once",
        Case("tests/streams/test_runs.py::test_the_log_is_needed_for_archived_records_until_the_archive_delay_is_over"),
    ),
    Record("log-dropped-before-commit", Case("tests/streams/test_runs.py::test_only_a_committed_run_releases_the_log")),
    Record("released-behind-a-gap", Case("tests/streams/test_runs.py::test_a_gap_in_front_of_the_runs_keeps_the_log")),
    Record(
        "read-while-dropped",
        Case("tests/streams/test_runs.py::test_a_dropped_run_stays_known_until_it_is_forgotten_and_is_not_read"),
    ),
    Record(
        "fork-drops-its-log",
        Case("tests/streams/test_runs.py::test_the_log_of_a_fork_keeps_what_the_old_cluster_may_remove"),
    ),
    Record(
        "run-read-unchecked",
        Case("tests/node/test_archived.py::test_a_flipped_byte_anywhere_never_gives_another_record"),
    ),
    Record(
        "trust-a-replaced-object",
        Case("tests/node/test_archived.py::test_a_damaged_object_is_an_error_that_names_it_and_the_node_goes_on"),
        "",
        Seed("failing stores", 3),
        "DamageIsFound",
    ),
    Record(
        "cache-by-topic",
        Case("tests/node/test_archived.py::test_the_records_of_a_run_are_not_taken_for_those_of_another_one"),
        "",
        Seed("failing stores", 2),
        "NothingDroppedBefore",
    ),
    Record(
        "log-dropped-unread",
        Case("tests/node/test_archived.py::test_the_log_keeps_records_of_a_run_that_the_store_has_lost"),
        "",
        Seed("failing stores", 7),
        "NothingDroppedBefore",
    ),
    Record(
        "cache-without-bound",
        Case(
            "tests/node/test_archived.py::test_the_cache_has_a_bound_in_bytes_and_drops_what_was_not_used_for_longest"
        ),
    ),
    Record(
        "replay-excuses-loss",
        Case("tests/node/test_archived.py::test_a_replay_reports_records_that_are_neither_in_the_log_nor_archived"),
    ),
    Record(
        "restore-by-the-delay",
        Case("tests/backup/test_restore.py::test_a_cut_before_the_end_of_an_archive_delay_is_restored"),
    ),
    Record(
        "answers-hold-row-groups",
        Case("tests/node/test_archived.py::test_an_answer_does_not_keep_the_row_group_in_memory"),
    ),
    Record(
        "wait-for-ever",
        Case(
            "tests/archive/test_run_process.py::test_a_store_that_hangs_is_left_at_the_time_limit_and_its_process_killed"
        ),
    ),
    Record("stop-waits", Case("tests/node/test_archive_process.py::test_a_stop_does_not_wait_for_a_store_that_hangs")),
    Record(
        "use-the-dead",
        Case("tests/archive/test_run_process.py::test_a_process_that_is_killed_before_any_call_fails_that_call_only"),
    ),
    Record(
        "outlive-the-node", Case("tests/archive/test_run_process.py::test_the_process_ends_with_a_node_that_is_killed")
    ),
    Record(
        "start-without-bound", Case("tests/archive/test_run_process.py::test_processes_that_do_not_end_are_two_at_most")
    ),
    Record(
        "finish-over-a-failure",
        Case(
            "tests/archive/test_run_process.py::test_the_error_of_a_piece_is_raised_by_the_next_calls_and_no_run_is_completed"
        ),
    ),
    Record(
        "tidy-out-of-turn",
        Case("tests/node/test_archive_tidying.py::test_a_run_that_is_being_written_is_not_tidied_away"),
    ),
    Record(
        "tidy-never", Case("tests/node/test_archive_tidying.py::test_the_leader_removes_what_no_run_needs_by_itself")
    ),
    Record("tidy-as-follower", Case("tests/node/test_archive_tidying.py::test_only_the_leader_tidies")),
    Record(
        "commit-unsynced",
        Case("tests/sim/test_archives.py::test_records_are_archived_and_deleted_from_the_log_and_read_again"),
        "",
        Seed("failing stores", 1),
        "CommittedIsWhole",
    ),
    Record(
        "commit-unnamed",
        Case("tests/sim/test_archives.py::test_records_are_archived_and_deleted_from_the_log_and_read_again"),
        "",
        Seed("failing stores", 1),
        "CommittedIsWhole",
    ),
    Record(
        "run-id-reused",
        Case("tests/sim/test_archives.py::test_records_are_archived_and_deleted_from_the_log_and_read_again"),
        "",
        Seed("failing stores", 1),
        "RunIdsStay",
    ),
    Record(
        "look-at-a-part",
        Case("tests/sim/test_archives.py::test_records_are_archived_and_deleted_from_the_log_and_read_again"),
        "",
        Seed("failing stores", 2),
        "NothingDroppedBefore",
    ),
    Record(
        "prepare-unable",
        Case("tests/node/test_archive_process.py::test_a_process_that_cannot_load_pyarrow_leaves_no_run"),
    ),
    Record(
        "delete-unarchived",
        Case("tests/streams/test_archive_settings.py::test_records_in_no_run_are_never_deleted_because_of_their_age"),
    ),
    Record(
        "retention-deletes-runs",
        Case(
            "tests/streams/test_archive_settings.py::test_with_the_archive_the_retention_deletes_nothing_and_says_what_the_log_keeps"
        ),
    ),
    Record(
        "archive-too-young",
        Case("tests/streams/test_archive_settings.py::test_records_younger_than_the_archive_age_wait"),
    ),
    Record(
        "settings-unprobed",
        Case("tests/node/test_archive_rounds.py::test_no_settings_are_written_that_a_member_cannot_read"),
    ),
    Record(
        "keep-deleted-files",
        Case("tests/node/test_archive_rounds.py::test_deleted_runs_leave_the_store_after_a_crash_at_any_step"),
    ),
    Record(
        "stall-at-one-topic",
        Case(
            "tests/node/test_archive_rounds.py::test_a_topic_whose_archive_fails_keeps_its_records_and_the_others_go_on"
        ),
    ),
    Record(
        "idle-for-ever",
        Case(
            "tests/streams/test_archive_settings.py::test_an_idle_leader_advances_log_time_when_an_age_or_a_delay_ends"
        ),
    ),
    Record(
        "archive-needs-room",
        Case("tests/node/test_archive_rounds.py::test_an_operator_archives_a_topic_whose_records_have_filled_the_log"),
    ),
    Record(
        "read-from-the-batch",
        Case(
            "tests/sim/test_archives.py::test_a_reader_gets_each_record_once_where_the_log_divides_them_otherwise_than_a_run[8]"
        ),
    ),
    Record(
        "look-below-the-log",
        Case(
            "tests/node/test_archived.py::test_records_behind_a_topic_that_was_archived_as_a_whole_are_read_and_archived"
        ),
    ),
    Record(
        "put-unconditionally",
        Case("tests/archive/test_s3_store.py::test_of_two_writers_the_first_to_finish_has_the_name[whole]"),
    ),
    Record(
        "believe-the-store",
        Case(
            "tests/archive/test_s3_store.py::test_a_store_that_ignores_the_condition_is_refused_before_the_first_object[PUT]"
        ),
    ),
    Record(
        "claim-what-is-there",
        Case("tests/archive/test_s3_store.py::test_the_object_of_another_writer_is_never_taken_for_the_own_one[whole]"),
    ),
    Record(
        "deny-what-was-done",
        Case("tests/archive/test_s3_store.py::test_an_object_is_there_once_if_the_answer_of_a_request_is_lost[whole]"),
    ),
    Record("read-one-page", Case("tests/archive/test_s3_store.py::test_lists_of_many_pages_are_whole")),
    Record("keep-parts", Case("tests/archive/test_s3_store.py::test_parts_of_a_dead_writer_are_listed_and_removed")),
    Record(
        "abandon-the-name",
        Case("tests/archive/test_s3_store.py::test_an_abandoned_object_leaves_nothing_and_keeps_that_of_another"),
    ),
    Record("believe-the-range", Case("tests/archive/test_s3_store.py::test_a_store_that_ignores_ranges_is_refused")),
    Record(
        "read-all-that-is-sent",
        Case(
            "tests/archive/test_s3_store.py::test_of_an_answer_that_is_longer_than_asked_for_only_one_byte_more_is_read"
        ),
    ),
    Record(
        "ask-once", Case("tests/archive/test_s3_store.py::test_a_store_that_fails_for_a_moment_is_asked_again[lost]")
    ),
    Record(
        "ask-for-ever", Case("tests/archive/test_s3_store.py::test_a_store_that_hangs_is_an_error_after_a_bounded_time")
    ),
    Record(
        "ask-a-silent-store",
        Case(
            "tests/archive/test_s3_store.py::test_after_a_call_without_an_answer_the_store_is_left_alone_until_one_call_succeeds"
        ),
    ),
    Record(
        "dropped-run-is-empty",
        Case("tests/spark/test_archived.py::test_a_run_that_was_dropped_after_the_plan_is_an_error_with_its_name"),
    ),
    Record("read-the-whole-run", Case("tests/spark/test_archived.py::test_each_position_of_a_query_is_read_once")),
    Record("end-with-the-runs", Case("tests/spark/test_archived.py::test_micro_batches_read_runs_and_then_the_log")),
    Record(
        "repeat-a-lost-commit",
        Case("tests/archive/test_iceberg.py::TestRaces::test_of_two_exports_one_wins_and_the_other_adds_nothing[old]"),
    ),
    Record(
        "believe-the-property",
        Case(
            "tests/archive/test_iceberg.py::TestRaces::test_a_table_that_was_rolled_back_gets_the_missing_records_again"
        ),
    ),
    Record(
        "believe-the-files",
        Case("tests/archive/test_iceberg.py::TestRaces::test_an_expired_snapshot_and_files_that_disagree_are_no_guess"),
    ),
    Record(
        "repeat-secrets", Case("tests/archive/test_s3_store.py::test_no_secret_is_in_an_error_a_log_line_or_a_repr")
    ),
    Record(
        "schema-becomes-narrower",
        Case("tests/streams/test_topic_schema.py::test_a_copy_changes_nothing_and_a_late_one_is_refused"),
    ),
    Record(
        "schema-in-an-old-snapshot",
        Case("tests/streams/test_topic_schema.py::test_a_snapshot_has_the_schema_and_one_without_schemas_is_as_before"),
    ),
    Record("append-the-rows-that-fit", Case("tests/client/test_rows.py::test_no_row_is_sent_if_one_does_not_fit")),
    Record(
        "write-any-columns", Case("tests/spark/test_rows.py::test_columns_are_compared_with_the_schema_of_the_topic")
    ),
    Record(
        "write-null-values",
        Case("tests/spark/test_rows.py::test_rows_of_a_schema_have_one_topic_and_no_null_where_the_schema_has_none"),
    ),
    Record(
        "columns-for-each-schema",
        Case("tests/archive/test_run_rows.py::test_a_column_is_used_only_if_the_rows_have_the_same_for_that_field"),
    ),
    Record(
        "columns-unchecked",
        Case("tests/archive/test_run_rows.py::test_a_changed_byte_is_an_error_or_changes_nothing_that_is_read"),
    ),
    Record(
        "bounds-of-a-prefix",
        Case("tests/archive/test_run_rows.py::test_a_group_is_left_out_if_its_bounds_exclude_the_condition"),
    ),
    Record(
        "export-from-the-old-end",
        Case(
            "tests/archive/test_iceberg.py::test_records_of_another_export_are_not_added_again_after_the_columns_have_changed"
        ),
    ),
    Record(
        "begin-found-topics-late",
        Case("tests/spark/test_stream_source.py::test_a_topic_that_is_found_later_is_read_from_its_first_record"),
    ),
    Record(
        "hold-micro-batches",
        Case("tests/spark/test_stream_source.py::test_the_delay_begins_with_the_first_record_that_waits"),
    ),
    Record(
        "keys-oldest-wins",
        Case("tests/archive/test_key_store.py::test_dumps_and_merges_hold_the_last_record_of_each_key"),
    ),
    Record(
        "keys-deletions-vanish",
        Case("tests/archive/test_key_store.py::test_dumps_and_merges_hold_the_last_record_of_each_key"),
    ),
    Record(
        "keys-tail-unread", Case("tests/node/test_keyed.py::test_the_table_is_rebuilt_from_the_log_after_a_restart")
    ),
    Record(
        "keys-read-stale",
        Case("tests/node/test_keyed.py::test_a_get_sees_the_last_record_of_a_key_in_the_log_and_in_runs"),
    ),
    Record(
        "keys-table-lost",
        Case("tests/node/test_keyed.py::test_a_get_sees_the_last_record_of_a_key_in_the_log_and_in_runs"),
    ),
    Record("keys-commit-unread", Case("tests/node/test_keyed.py::test_a_store_that_lies_gets_no_commit_of_keys")),
    Record(
        "keys-forget-unremoved", Case("tests/node/test_keyed.py::test_a_run_whose_file_cannot_be_removed_stays_known")
    ),
    Record("keys-trim-undumped", Case("tests/streams/test_keyed.py::test_a_trim_deletes_only_what_is_dumped")),
    Record(
        "keys-keep-replaced",
        Case("tests/streams/test_keyed.py::test_dumps_tile_and_a_merge_replaces_its_slices_in_one_record"),
    ),
    Record(
        "keys-unprobed", Case("tests/node/test_keyed.py::test_a_member_of_an_older_release_gets_no_record_about_keys")
    ),
    Record(
        "keys-filter-gap", Case("tests/archive/test_key_store.py::test_a_filter_passes_what_was_added_and_little_else")
    ),
    Record(
        "keys-read-every-run",
        Case("tests/archive/test_key_store.py::test_a_filter_passes_what_was_added_and_little_else"),
    ),
    Record("keys-group-unverified", Case("tests/archive/test_key_store.py::test_no_changed_byte_gives_another_record")),
    Record(
        "keys-checksum-blind",
        Case("tests/archive/test_key_store.py::test_a_changed_row_of_a_group_has_another_checksum"),
    ),
    Record(
        "keys-request-a-column",
        Case("tests/archive/test_key_store.py::test_a_get_asks_the_store_once_and_one_of_a_cached_group_never"),
    ),
    Record(
        "keys-groups-unbounded",
        Case("tests/archive/test_key_store.py::test_the_groups_in_memory_are_bounded_by_their_bytes"),
    ),
    Record("keys-page-unbounded", Case("tests/node/test_keyed.py::test_scans_of_many_pages_have_each_key_once")),
    Record(
        "keys-id-reused",
        Case(
            "tests/streams/test_keyed.py::test_the_id_of_a_run_of_keys_is_the_index_of_its_prepare_and_is_not_used_again"
        ),
    ),
    Record(
        "keys-in-no-snapshot",
        Case("tests/streams/test_keyed.py::test_a_snapshot_has_the_views_of_its_index_while_later_records_are_applied"),
    ),
    Record(
        "keys-two-at-once",
        Case("tests/streams/test_keyed.py::test_two_runs_of_keys_of_the_same_positions_are_told_apart"),
    ),
    Record(
        "keys-commit-after-drop",
        Case("tests/streams/test_keyed.py::test_two_runs_of_keys_of_the_same_positions_are_told_apart"),
    ),
    Record("keys-wrong-content", Case("tests/streams/test_keyed.py::test_each_rule_refuses_by_its_name")),
    Record(
        "keys-behind-a-gap",
        Case("tests/streams/test_keyed.py::test_a_record_of_keys_that_was_lost_is_missed_by_the_next_one"),
    ),
    Record(
        "keys-ahead-of-topics",
        Case("tests/streams/test_keyed.py::test_views_that_are_ahead_of_their_topics_are_damage"),
    ),
    Record("keys-are-orphans", Case("tests/streams/test_keyed.py::test_objects_of_both_sorts_of_runs_are_no_orphans")),
    Record(
        "keys-fork-owns",
        Case("tests/streams/test_keyed.py::test_a_fork_begins_a_view_again_if_the_topic_keeps_all_its_records"),
    ),
    Record(
        "keys-fork-loses",
        Case("tests/streams/test_keyed.py::test_a_fork_begins_a_view_again_if_the_topic_keeps_all_its_records"),
    ),
    Record(
        "reshard-loses-an-instance",
        Case("tests/fork/test_reshard.py::test_a_cluster_without_groups_spreads_the_actors_that_are_named"),
    ),
    Record(
        "reshard-keeps-what-leaves",
        Case("tests/fork/test_reshard.py::test_a_cluster_without_groups_spreads_the_actors_that_are_named"),
    ),
    Record(
        "reshard-by-the-old-groups",
        Case("tests/fork/test_reshard.py::test_log_time_goes_on_from_the_highest_one_of_all_groups"),
    ),
    Record(
        "reshard-of-the-first-version",
        Case("tests/fork/test_reshard.py::test_a_group_that_the_new_code_has_not_been_called_in_is_refused"),
    ),
    Record("reshard-unchecked", Case("tests/fork/test_reshard.py::test_new_files_that_differ_are_no_cluster")),
    Record(
        "reshard-at-the-time-of-each-group",
        Case("tests/fork/test_reshard.py::test_log_time_goes_on_from_the_highest_one_of_all_groups"),
    ),
    Record(
        "reshard-beside-a-node",
        Case("tests/fork/test_reshard.py::test_a_node_that_ran_while_the_files_were_written_is_noticed"),
    ),
    Record(
        "instances-without-their-version",
        Case(
            "tests/streams/test_resharding.py::test_a_group_that_instances_come_to_begins_no_era_with_their_next_call"
        ),
    ),
    Record(
        "reshard-believes-group-0",
        Case(
            "tests/streams/test_resharding.py::test_a_leader_whose_node_has_an_old_state_of_group_0_goes_by_the_new_owners"
        ),
    ),
)
"""One record for each mutant, in the order of ``CATALOGUE``."""
