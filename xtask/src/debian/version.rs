//! The order of Debian's version numbers, as `dpkg --compare-versions` has it.

use std::cmp::Ordering;

/// Compares two versions without epochs.
///
/// Versions are compared as runs of other characters and of digits, in turns: digits as numbers,
/// the rest with letters before everything else, and `~` before even the end.
pub fn compare(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    while !left.is_empty() || !right.is_empty() {
        let order = compare_text(take(&mut left, false), take(&mut right, false));
        let order =
            order.then_with(|| compare_numbers(take(&mut left, true), take(&mut right, true)));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Splits the longest run of digits, or of anything but digits, off the front.
fn take<'a>(text: &mut &'a [u8], digits: bool) -> &'a [u8] {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit() == digits).count();
    let (run, rest) = text.split_at(length);
    *text = rest;
    run
}

fn compare_text(left: &[u8], right: &[u8]) -> Ordering {
    let length = left.len().max(right.len());
    let rank = |text: &[u8], at: usize| match text.get(at) {
        Some(b'~') => -1,
        None => 0,
        Some(letter) if letter.is_ascii_alphabetic() => i32::from(*letter),
        Some(other) => i32::from(*other) + 256,
    };
    (0..length)
        .map(|at| rank(left, at).cmp(&rank(right, at)))
        .find(|o| o.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn compare_numbers(left: &[u8], right: &[u8]) -> Ordering {
    let significant = |digits: &[u8]| {
        let zeroes = digits.iter().take_while(|&&digit| digit == b'0').count();
        digits[zeroes..].to_vec()
    };
    let (left, right) = (significant(left), significant(right));
    left.len().cmp(&right.len()).then(left.cmp(&right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_dpkg_orders_them() {
        let ascending = [
            "6.1.0-9",
            "6.1.0-57",
            "6.9.7~bpo12",
            "6.9.7",
            "6.9.7+deb13",
            "6.12.95",
            "6.12.100+deb12",
            "6.12.100+deb13",
            "6.12.100+deb13.1",
            "7.0.4",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
    }

    #[test]
    fn leading_zeroes_do_not_count_and_letters_come_before_signs() {
        assert_eq!(compare("1.007", "1.7"), Ordering::Equal);
        assert_eq!(compare("1.0a", "1.0+"), Ordering::Less);
        assert_eq!(compare("1.0", "1.0a"), Ordering::Less);
        assert_eq!(compare("1.0~rc1", "1.0"), Ordering::Less);
    }
}
