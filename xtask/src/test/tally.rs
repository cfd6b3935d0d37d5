//! Counts of tests, read from what test programs print. Pure.

use std::fmt;

/// How many tests passed, failed, or were skipped.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were left out, with a reason in the output.
    pub skipped: u64,
    /// What to show of the failures at the end.
    pub failures: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, failures: _ } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Tally {
    /// Counts one failure.
    pub fn fail(&mut self, what: String) {
        self.failed += 1;
        self.failures.push(what);
    }

    /// Adds the results of one place, named in its failures.
    pub fn add(&mut self, place: &str, other: Self) {
        let Self { passed, failed, skipped, failures } = other;
        self.passed += passed;
        self.failed += failed;
        self.skipped += skipped;
        self.failures.extend(failures.into_iter().map(|what| format!("{place}: {what}")));
    }

    /// Takes a line of `cargo test` into account: one such as
    /// `test result: FAILED. 5 passed; 1 failed; 0 ignored; …`, or a failed test's name.
    pub fn count_cargo_test(&mut self, line: &str) {
        if let Some(sums) = line.strip_prefix("test result: ") {
            for part in sums.split(['.', ';']) {
                match count(part) {
                    Some((number, "passed")) => self.passed += number,
                    Some((number, "failed")) => self.failed += number,
                    Some((number, "ignored")) => self.skipped += number,
                    _ => {}
                }
            }
        } else if let Some(name) = failed_test(line) {
            self.failures.push(name.to_owned());
        }
    }

    /// Reads the output of lazyfree-e2e: a line for each test, then the sum. No sum means that the
    /// program did not come to its end, which is a failure.
    pub fn of_end_to_end(output: &str) -> Self {
        let mut tally = Self::default();
        tally.failures.extend(output.lines().filter_map(failed_test).map(str::to_owned));
        let Some([passed, failed, skipped]) = output.lines().next_back().and_then(sum) else {
            tally.fail("lazyfree-e2e printed no sum".to_owned());
            return tally;
        };
        Self { passed, failed, skipped, ..tally }
    }
}

/// The rest of `test NAME ... FAILED: why` or `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ").filter(|rest| rest.contains(" ... FAILED"))
}

/// `N passed, N failed, N skipped`.
fn sum(line: &str) -> Option<[u64; 3]> {
    let mut numbers = [0; 3];
    let mut parts = line.split(", ");
    for (number, word) in numbers.iter_mut().zip(["passed", "failed", "skipped"]) {
        *number = count(parts.next()?).filter(|(_, found)| *found == word)?.0;
    }
    parts.next().is_none().then_some(numbers)
}

/// A number and the word after it.
fn count(text: &str) -> Option<(u64, &str)> {
    let (number, word) = text.trim().split_once(' ')?;
    Some((number.parse().ok()?, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_several_test_programs_add_up() {
        let mut tally = Tally::default();
        let output = "\
running 6 tests
test model::rate ... ok
test tui::narrow ... FAILED
test result: FAILED. 4 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        output.lines().for_each(|line| tally.count_cargo_test(line));
        assert_eq!((tally.passed, tally.failed, tally.skipped), (9, 1, 1));
        assert_eq!(tally.failures, ["tui::narrow ... FAILED"]);
    }

    #[test]
    fn the_sum_of_the_end_to_end_tests_is_taken_and_its_failures_named() {
        let output = "\
test mark ... ok
test pin ... FAILED: 2047 pages, expected 2048
test swap ... skipped: no swap
1 passed, 1 failed, 1 skipped
";
        let tally = Tally::of_end_to_end(output);
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures, ["pin ... FAILED: 2047 pages, expected 2048"]);
        let mut all = Tally { passed: 2, ..Tally::default() };
        all.add("Linux 6.1", tally);
        assert_eq!(all.to_string(), "3 passed, 1 failed, 1 skipped");
        assert_eq!(all.failures, ["Linux 6.1: pin ... FAILED: 2047 pages, expected 2048"]);
    }

    #[test]
    fn a_test_program_without_a_sum_has_failed() {
        for output in ["", "test mark ... ok\n", "1 passed, 0 failed\n", "1 passed, 0 failed, 0 ok"]
        {
            assert_eq!(Tally::of_end_to_end(output).failed, 1, "{output:?}");
        }
    }
}
