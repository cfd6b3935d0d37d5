//! How much may be read in a tick of what costs the host something to read. Values only: the
//! caller measures.

use std::{mem, time::Duration};

/// CPU time that each tick grants and each reading takes.
///
/// A reading can't be cut short, so it may take more than there is; then the ticks after it go
/// without until that is made up for. Whatever a single reading costs, all together get their
/// share of a CPU and no more.
#[derive(Debug)]
pub struct Ration {
    share: Duration,
    grant: Duration,
    left: Duration,
    owed: Duration,
}

impl Ration {
    /// Grants `at_start` in the first tick, and `share` in each after it.
    pub fn new(share: Duration, at_start: Duration) -> Self {
        Self { share, grant: at_start, left: Duration::ZERO, owed: Duration::ZERO }
    }

    /// Begins a tick. What the one before it didn't need is not saved up.
    pub fn begin(&mut self) {
        let grant = mem::replace(&mut self.grant, self.share);
        self.left = grant.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(grant);
    }

    /// Whether one more reading may be made in this tick.
    pub fn is_left(&self) -> bool {
        !self.left.is_zero()
    }

    /// Takes what a reading cost.
    pub fn spend(&mut self, cost: Duration) {
        self.owed += cost.saturating_sub(self.left);
        self.left = self.left.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_tick_ends_when_its_share_is_spent_and_saves_nothing() {
        let mut ration = Ration::new(ms(2), ms(2));
        ration.begin();
        ration.begin();
        ration.spend(ms(1));
        assert!(ration.is_left());
        ration.spend(ms(1));
        assert!(!ration.is_left());
        ration.begin();
        assert!(ration.is_left(), "nothing is owed");
    }

    #[test]
    fn a_costly_reading_is_made_up_for() {
        let mut ration = Ration::new(ms(2), ms(2));
        ration.begin();
        ration.spend(ms(7));
        let mut ticks = 0;
        while !ration.is_left() {
            ration.begin();
            ticks += 1;
        }
        // 7 = 2 of the first tick + 2 + 2 + 1, and 1 is left of the last.
        assert_eq!(ticks, 3);
        ration.spend(ms(1));
        assert!(!ration.is_left());
    }

    #[test]
    fn the_first_tick_has_a_grant_of_its_own() {
        let mut ration = Ration::new(ms(2), ms(100));
        ration.begin();
        ration.spend(ms(99));
        assert!(ration.is_left());
        ration.begin();
        ration.spend(ms(2));
        assert!(!ration.is_left());
    }
}
