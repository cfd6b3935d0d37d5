//! Shows a snapshot to programs and to people without a screen.
//!
//! [`metrics`] is the Prometheus text, [`json`] the report of `lazyfree stat` and `table` the same
//! report for people: all three are pure. [`http`] is the only file with a socket in it. What isn't
//! observed is absent from every surface; a zero always means that nothing happened.

mod duration;
pub mod http;
pub mod json;
pub mod metrics;
mod series;
mod table;
mod units;
mod vmstat;

#[cfg(test)]
mod docs;
#[cfg(test)]
mod fixture;

use lazyfree_common::Family;

use crate::{
    model::Snapshot,
    signal::{HookKind, Signal},
};

/// The signals that the hooks of a family count.
const fn signals_of(family: Family) -> &'static [Signal] {
    match family {
        Family::Madvise => &[
            Signal::Advised,
            Signal::Marked,
            Signal::MarkedUnderPressure,
            Signal::Deactivated,
            Signal::SwapEntriesFreed,
        ],
        Family::Reclaim => {
            &[Signal::Attempts, Signal::Hit, Signal::Redirtied, Signal::ReclaimPinned, Signal::Kept]
        }
        Family::Compaction => {
            &[Signal::CompactionScanned, Signal::CompactionIsolated, Signal::CompactionPinned]
        }
    }
}

/// Whether probes of a family are attached, so that its counters mean something. The kernel's own
/// counter in place of a probe doesn't count.
fn probed(snapshot: &Snapshot, family: Family) -> bool {
    signals_of(family).iter().filter_map(|&signal| snapshot.signal(signal)).any(|state| {
        state.pages.is_some() && state.kind.is_some_and(|kind| kind != HookKind::Procfs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_belongs_to_one_family() {
        let mut signals: Vec<_> = Family::ALL.iter().flat_map(|f| signals_of(*f)).collect();
        signals.sort();
        assert!(signals.iter().copied().eq(Signal::ALL.iter()));
    }

    #[test]
    fn a_counter_of_the_kernel_is_no_probe() {
        assert!(Family::ALL.iter().all(|family| probed(&fixture::full(), *family)));
        assert!(!Family::ALL.iter().any(|family| probed(&fixture::vmstat_only(), *family)));
    }
}
