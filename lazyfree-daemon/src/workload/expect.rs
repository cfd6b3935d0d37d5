//! What must come of pages that are marked, disturbed and reclaimed. Pure.

use super::{report::Counts, trigger::Trigger};
use crate::signal::Signal;

/// What is done to pages of which each is marked once.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pages given to MADV_FREE, each present and ours alone.
    pub pages: u64,
    /// Of those, written to again before reclaim.
    pub redirtied: u64,
    /// Of those, clean and with an extra reference.
    pub pinned: u64,
}

/// Numbers that must be met, exactly or within bounds, by signal name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Exact numbers.
    pub exact: Counts,
    /// Lower bounds.
    pub at_least: Counts,
    /// Upper bounds.
    pub at_most: Counts,
}

impl Plan {
    /// Pages that reclaim can free.
    pub fn hits(&self) -> u64 {
        self.pages - self.redirtied - self.pinned
    }

    /// What must be counted when reclaim is made to act by `trigger`.
    pub fn expect(&self, trigger: Trigger) -> Expectation {
        let mut expectation = Expectation::default();
        let Expectation { exact, at_least, at_most } = &mut expectation;
        exact.set(Signal::Advised.name(), self.pages);
        exact.set(Signal::Marked.name(), self.pages);
        match trigger {
            Trigger::None => {}
            // MADV_PAGEOUT gives each page to shrink_folio_list once, and ignores references.
            Trigger::Pageout => {
                exact.set(Signal::Attempts.name(), self.pages);
                exact.set(Signal::Hit.name(), self.hits());
                exact.set(Signal::Redirtied.name(), self.redirtied);
                exact.set(Signal::ReclaimPinned.name(), self.pinned);
            }
            // Reclaim by size comes back to pages it couldn't take: from 6.16 pinned ones stay
            // lazyfree and are tried again and again. MGLRU from 6.16 to 7.1 finds some dirty pages
            // by looking around in page tables, before they are tried (lru_gen_look_around).
            Trigger::Memcg | Trigger::Reclaim => {
                exact.set(Signal::Hit.name(), self.hits());
                at_least.set(Signal::Attempts.name(), self.hits() + self.pinned);
                if self.redirtied > 0 {
                    at_least.set(Signal::Redirtied.name(), 1);
                    at_most.set(Signal::Redirtied.name(), self.redirtied);
                }
                if self.pinned > 0 {
                    at_least.set(Signal::ReclaimPinned.name(), self.pinned);
                }
            }
        }
        expectation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { pages: 100, redirtied: 30, pinned: 20 };

    #[test]
    fn pageout_is_exact_and_its_attempts_add_up() {
        let Expectation { exact, at_least, at_most } = PLAN.expect(Trigger::Pageout);
        let of = |name| exact.get(name).unwrap();
        assert_eq!((of("marked"), of("hit")), (100, 50));
        assert_eq!(of("attempts"), of("hit") + of("redirtied") + of("reclaim_pinned"));
        assert!(at_least.is_empty() && at_most.is_empty());
    }

    #[test]
    fn without_a_trigger_nothing_is_said_about_reclaim() {
        let expectation = PLAN.expect(Trigger::None);
        assert_eq!(expectation.exact.get("advised"), Some(100));
        assert_eq!(expectation.exact.get("hit"), None);
    }

    #[test]
    fn reclaim_by_size_bounds_what_it_may_try_again() {
        let expectation = PLAN.expect(Trigger::Memcg);
        assert_eq!(expectation.exact.get("hit"), Some(50));
        assert_eq!(expectation.exact.get("redirtied"), None);
        assert_eq!(expectation.at_least.get("redirtied"), Some(1));
        assert_eq!(expectation.at_most.get("redirtied"), Some(30));
        assert_eq!(expectation.at_least.get("reclaim_pinned"), Some(20));
    }
}
