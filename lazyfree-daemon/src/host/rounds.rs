//! Values of many things that can't all be read in each tick: they take turns, and those that are
//! not read keep what was read last. Reading itself is the caller's.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};

use super::ration::Ration;

/// The last value of each thing, and whose turn is next.
#[derive(Debug)]
pub struct Rounds<K, V> {
    /// `None` before the first turn.
    values: BTreeMap<K, Option<V>>,
    /// Whose turn was last.
    last: Option<K>,
}

impl<K: Clone + Ord, V> Rounds<K, V> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { values: BTreeMap::new(), last: None }
    }

    /// Forgets all that is not wanted, and lets what is new take its turn.
    pub fn keep_only(&mut self, wanted: BTreeSet<K>) {
        self.values.retain(|key, _| wanted.contains(key));
        for key in wanted {
            self.values.entry(key).or_insert(None);
        }
    }

    /// Forgets what `keep` is false for.
    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.values.retain(|_, value| value.as_ref().is_none_or(&mut keep));
    }

    /// Sets a value that was read out of turn.
    pub fn insert(&mut self, key: K, value: V) {
        self.values.insert(key, Some(value));
    }

    /// Whether it is one of those that take turns.
    pub fn contains(&self, key: &K) -> bool {
        self.values.contains_key(key)
    }

    /// How many take turns.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// What has been read, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)))
    }

    /// Reads, each at most once, as many as the ration allows. `read` is told what was read last, and
    /// gives a value, or `None` of what is gone and gets forgotten, and what the reading cost.
    pub fn turn(
        &mut self,
        ration: &mut Ration,
        mut read: impl FnMut(&K, Option<&V>) -> (Option<V>, Duration),
    ) {
        for _ in 0..self.values.len() {
            if !ration.is_left() {
                return;
            }
            let Some(key) = self.next() else { return };
            let before = self.values.get(&key).and_then(Option::as_ref);
            let (value, cost) = read(&key, before);
            ration.spend(cost);
            match value {
                Some(value) => self.insert(key.clone(), value),
                None => drop(self.values.remove(&key)),
            }
            self.last = Some(key);
        }
    }

    /// Whose turn it is.
    fn next(&self) -> Option<K> {
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut after = self.values.range((after, Bound::Unbounded));
        let (key, _) = after.next().or_else(|| self.values.first_key_value())?;
        Some(key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_millis(1);

    /// Enough for `readings` in each tick.
    fn ration(readings: u32) -> Ration {
        Ration::new(COST * readings, COST * readings)
    }

    /// Lets one tick pass; returns who was read.
    fn tick(
        rounds: &mut Rounds<u32, u32>,
        ration: &mut Ration,
        value: impl Fn(u32) -> Option<u32>,
    ) -> Vec<u32> {
        let mut read = Vec::new();
        ration.begin();
        rounds.turn(ration, |key, _| {
            read.push(*key);
            (value(*key), COST)
        });
        read
    }

    #[test]
    fn all_take_turns_and_keep_their_last_value() {
        let mut rounds = Rounds::new();
        let mut ration = ration(2);
        rounds.keep_only([1, 2, 3].into());
        assert_eq!(tick(&mut rounds, &mut ration, |key| Some(key * 10)), [1, 2]);
        assert_eq!(rounds.iter().collect::<Vec<_>>(), [(&1, &10), (&2, &20)]);
        assert_eq!(tick(&mut rounds, &mut ration, |key| Some(key * 100)), [3, 1]);
        assert_eq!(rounds.iter().collect::<Vec<_>>(), [(&1, &100), (&2, &20), (&3, &300)]);
    }

    #[test]
    fn a_reading_is_told_of_the_one_before() {
        let mut rounds = Rounds::new();
        let mut ration = ration(2);
        rounds.keep_only([1, 2].into());
        rounds.insert(2, 5);
        for expected in [[(1, 1), (2, 6)], [(1, 2), (2, 7)]] {
            ration.begin();
            rounds.turn(&mut ration, |_, before| (Some(before.unwrap_or(&0) + 1), COST));
            let found: Vec<_> = rounds.iter().map(|(key, value)| (*key, *value)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn nobody_is_read_twice_in_a_tick() {
        let mut rounds = Rounds::new();
        rounds.keep_only([1, 2].into());
        assert_eq!(tick(&mut rounds, &mut ration(9), Some), [1, 2]);
    }

    #[test]
    fn what_is_gone_or_not_wanted_is_forgotten() {
        let mut rounds = Rounds::new();
        let mut ration = ration(9);
        rounds.keep_only([1, 2, 3].into());
        tick(&mut rounds, &mut ration, |key| (key != 2).then_some(key));
        assert!(!rounds.contains(&2));
        rounds.keep_only([3, 4].into());
        assert_eq!(rounds.iter().collect::<Vec<_>>(), [(&3, &3)]);
        assert_eq!(tick(&mut rounds, &mut ration, Some), [4, 3]);
    }

    #[test]
    fn a_turn_is_found_though_the_last_reader_has_gone() {
        let mut rounds = Rounds::new();
        let mut ration = ration(1);
        rounds.keep_only([1, 2, 3].into());
        tick(&mut rounds, &mut ration, Some);
        rounds.keep_only([2, 3].into());
        assert_eq!(tick(&mut rounds, &mut ration, Some), [2]);
        rounds.keep_only([1].into());
        assert_eq!(tick(&mut rounds, &mut ration, Some), [1]);
    }
}
