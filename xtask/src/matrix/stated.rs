//! The table that this repository states: what each signal is worth on each kernel, and what a
//! kernel hasn't got. Pure, and the only place that says so.

use lazyfree_vm::{
    family::Family,
    matrix::line::{Accuracy, CROWD},
};

use super::variant::Variant;
use crate::kernel::Series;

/// On what a statement depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The kernel.
    pub series: Series,
    /// Whether the multi-generational LRU is on.
    pub mglru: bool,
    /// Kind of probe.
    pub family: Family,
}

/// What is stated of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it is worth.
    pub accuracy: Accuracy,
    /// The kernel's reason why that isn't `exact`; empty if it is.
    pub reason: &'static str,
}

const EXACT: Statement = Statement { accuracy: Accuracy::Exact, reason: "" };

/// What is stated of a signal at a place.
pub fn of(place: Place, signal: &str) -> Statement {
    let Place { series, mglru, family } = place;
    match signal {
        "deactivated" if mglru => Statement {
            accuracy: Accuracy::None,
            reason: "the multi-generational LRU has no active list to move a page from: \
                     `lru_gen_add_folio()` puts folios on the list of a generation, and clears \
                     PG_active for as long as they are there (6.1 to 7.3)",
        },
        "deactivated" => Statement {
            accuracy: Accuracy::Estimate,
            reason: "whether a page was active shows only until `lru_lazyfree()`, \
                     `lru_lazyfree_fn()` up to 6.1, clears PG_active, so each page would have to \
                     be looked at by itself; lazyfree looks at up to 4 of the folios that a call \
                     of `madvise_free_pte_range()` leaves in the CPU's batch, and scales (5.10 to \
                     7.3)",
        },
        "attempts" | "redirtied" if mglru && series.version() < (6, 12) => Statement {
            accuracy: Accuracy::Estimate,
            reason: "with the multi-generational LRU, `sort_folio()` makes dirty lazyfree folios \
                     swap-backed again by itself, before `shrink_folio_list()` gets to see them; \
                     it is inlined, so that nothing can be attached to it (6.1; gone in 6.12). \
                     What reclaim is handed in a list, as by MADV_PAGEOUT, is counted all the same",
        },
        "swap_entries_freed" if family == Family::Fentry && series.version() < (6, 1) => {
            Statement {
                accuracy: Accuracy::None,
                reason: "`btf_distill_func_proto()` of 5.10 refuses trampolines on functions that \
                         take a struct by value, as `free_swap_and_cache(swp_entry_t)` does. \
                         Unless `--probes fentry` forbids it, lazyfree attaches a kprobe there, \
                         which is exact",
            }
        }
        _ => EXACT,
    }
}

/// Why a number that is stated as exact may become an estimate in a workload, if lazyfree says what
/// was lost.
pub fn may_miss(series: Series, family: Family, workload: &str) -> Option<&'static str> {
    if workload != CROWD {
        return None;
    }
    match family {
        Family::Fentry => Some(MISSED_BY_TRAMPOLINES),
        Family::Kprobe => (series.version() < (6, 1)).then_some(MISSED_BY_KRETPROBES),
    }
}

/// Why `marked` may be ahead of the kernel's count, if lazyfree says so; see [`Count::is_ahead`].
pub const AHEAD: &str = "A task that is moved to another CPU marks pages again that wait in the batch of the CPU it left. \
     They are in two batches then, and `lru_lazyfree()` marks them once. lazyfree counts what waits in \
     batches, and doesn't step back when the second turns out to be none: it says estimate until as \
     many pages more are marked. Only the workload with two processes at once, `bomb`, isn't bound to \
     a CPU; seen were 16 pages on 6.18 and 2 on 6.19";

const MISSED_BY_TRAMPOLINES: &str = "through fentry, a trampoline skips a program that is already running on the CPU \
         (`__bpf_prog_enter_recur()`), so where the kernel preempts (7.3 boots with lazy \
         preemption), a task that is preempted inside a program makes another task's call a miss. \
         lazyfree reads how many there were, and no longer says exact; only the workload with two \
         processes at once, `bomb`, gets there. Sums that telescope, `marked` and `hit`, stay exact";

const MISSED_BY_KRETPROBES: &str = "through kprobes, `register_kretprobe()` of 5.10 makes as many instances as there are CPUs, where \
     the kernel doesn't preempt. A task that `cond_resched()` schedules away inside \
     `madvise_free_pte_range()` holds one, and with one CPU the next task's return is missed. lazyfree \
     counts them as lost, and no longer says exact; from 6.1 on there are at least ten";

/// Why a kernel hasn't got what makes a kind of guest.
pub fn missing(series: Series, variant: Variant) -> Option<&'static str> {
    match variant {
        Variant::OtherLru if series.version() < (6, 1) => {
            Some("5.10 has the classic LRU only; the multi-generational one came with 6.1")
        }
        Variant::CgroupV1 if series.version() >= (6, 12) => {
            Some("Debian's kernels from 6.12 on are built without CONFIG_MEMCG_V1")
        }
        _ => None,
    }
}

/// Why a workload can't be run on a kernel.
pub fn unavailable(series: Series, workload: &str, has_swap: bool) -> Option<&'static str> {
    match workload {
        "mark_proactive" if series.version() < (5, 19) => {
            Some("5.10 has no memory.reclaim, which came with 5.19")
        }
        "swap" if !has_swap => Some("this guest has no swap"),
        _ => None,
    }
}

/// Signals of which no workload knows more than that they stay 0: reclaim keeps a page when its
/// lock is contended, or it was just looked at, and neither can be made to happen a known number of
/// times.
pub const KNOWN_TO_STAY_0: [&str; 1] = ["kept"];

#[cfg(test)]
mod tests {
    use lazyfree_vm::matrix::SIGNALS;

    use super::*;
    use crate::kernel;

    fn places() -> impl Iterator<Item = Place> {
        kernel::ALL.into_iter().flat_map(|series| {
            [false, true]
                .into_iter()
                .flat_map(move |mglru| Family::ALL.map(|family| Place { series, mglru, family }))
        })
    }

    #[test]
    fn what_is_not_exact_has_a_reason_with_a_function_and_a_version() {
        for place in places() {
            for signal in SIGNALS {
                let Statement { accuracy, reason } = of(place, signal);
                assert_eq!(accuracy == Accuracy::Exact, reason.is_empty(), "{place:?} {signal}");
                if accuracy != Accuracy::Exact {
                    let has_version = ["5.10", "6.1"].iter().any(|text| reason.contains(text));
                    assert!(reason.contains("()`") && has_version, "{reason}");
                }
            }
        }
    }

    #[test]
    fn all_is_exact_but_for_the_sample_the_old_mglru_and_one_hook_of_5_10() {
        let mut others = Vec::new();
        for place in places() {
            for signal in SIGNALS {
                let accuracy = of(place, signal).accuracy;
                if accuracy != Accuracy::Exact && signal != "deactivated" {
                    others.push((place.series.to_string(), place.mglru, place.family, signal));
                }
            }
        }
        let of_fentry =
            |(_, _, family, _): &&(String, bool, Family, &str)| *family == Family::Fentry;
        let fentry: Vec<_> = others.iter().filter(of_fentry).collect();
        let expected = [
            ("5.10", false, "swap_entries_freed"),
            // There is no such kernel, and nothing is lost by stating what it would be like.
            ("5.10", true, "swap_entries_freed"),
            ("5.10", true, "attempts"),
            ("5.10", true, "redirtied"),
            ("6.1", true, "attempts"),
            ("6.1", true, "redirtied"),
        ]
        .map(|(series, mglru, signal)| (series.to_owned(), mglru, Family::Fentry, signal));
        assert_eq!(fentry.len(), expected.len());
        assert!(expected.iter().all(|one| others.contains(one)), "{others:?}");
        assert_eq!(others.len() - fentry.len(), 4);
    }

    #[test]
    fn calls_are_missed_only_beside_other_tasks() {
        let [old, new] = ["5.10", "6.1"].map(|name| name.parse().unwrap());
        assert!(may_miss(new, Family::Fentry, CROWD).is_some());
        assert!(may_miss(new, Family::Kprobe, CROWD).is_none());
        assert!(may_miss(old, Family::Kprobe, CROWD).is_some());
        assert!(may_miss(old, Family::Kprobe, "mark").is_none());
        assert!(may_miss(new, Family::Fentry, "mark").is_none());
    }

    #[test]
    fn each_kernel_has_the_plain_guests() {
        for series in kernel::ALL {
            for variant in [Variant::Plain, Variant::OneCpu, Variant::EightCpus, Variant::Swap] {
                assert_eq!(missing(series, variant), None);
            }
        }
    }
}
