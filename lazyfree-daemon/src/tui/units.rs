//! Numbers as text: sizes, rates, counts, durations. Pure.
//!
//! Everything that changes while somebody looks has a bounded width, so that a column that is
//! aligned to the right never jumps. Rounding never turns something into nothing, or nearly all
//! into all.

/// Widest text of [`bytes`].
pub const BYTES_WIDTH: usize = 8;
/// Widest text of [`bytes_per_second`] and [`count_per_second`].
pub const RATE_WIDTH: usize = 10;
/// Widest text of [`count`].
pub const COUNT_WIDTH: usize = 13;

const IEC: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SI: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// A size in three digits, or four below 1024: `"540 MiB"`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &IEC)
}

/// Like [`bytes`], a second.
pub fn bytes_per_second(rate: f64) -> String {
    format!("{}/s", bytes(rate))
}

/// A number with separators, and from ten thousand millions on in three digits.
pub fn count(n: u64) -> String {
    if n >= 10_000_000_000 {
        return scaled(n as f64, 1000.0, &SI);
    }
    let digits = n.to_string();
    let mut text = String::with_capacity(COUNT_WIDTH);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Events a second.
pub fn count_per_second(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 {
        return format!("{:.1}/s", rate.max(0.1));
    }
    if rate < 99_999.5 {
        return format!("{}/s", count(rate.round() as u64));
    }
    format!("{}/s", scaled(rate, 1000.0, &SI))
}

/// A number that may be below zero; above it the sign is spelled out.
pub fn signed(n: i64) -> String {
    let sign = match n {
        ..0 => "-",
        0 => "",
        1.. => "+",
    };
    format!("{sign}{}", count(n.unsigned_abs()))
}

/// A part of a whole: `"45.0%"`, at most six characters.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let tenths = part as f64 / whole as f64 * 1000.0;
    match tenths {
        _ if part > 0 && tenths < 1.0 => "<0.1%".to_owned(),
        _ if part < whole && tenths > 999.0 => ">99.9%".to_owned(),
        _ => format!("{:.1}%", tenths / 10.0),
    }
}

/// A duration in three digits: `"16.4 µs"`.
pub fn duration_ns(ns: u64, ascii: bool) -> String {
    let units = [
        (1_000, "ns", 1.0),
        (1_000_000, if ascii { "us" } else { "µs" }, 1e3),
        (1_000_000_000, "ms", 1e6),
        (60_000_000_000, "s", 1e9),
        (u64::MAX, "min", 60e9),
    ];
    let (_, unit, size) = units.iter().find(|(below, ..)| ns < *below).unwrap_or(&units[4]);
    let value = ns as f64 / size;
    if *size == 1.0 { format!("{ns} {unit}") } else { format!("{} {unit}", digits(value)) }
}

/// Seconds as `"00:02:05"`, with days in front from one day on.
pub fn elapsed(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days == 0 { clock } else { format!("{days}d {clock}") }
}

/// The round number at or above `value`, for the top of a scale: 1, 2 or 5 times a power of ten,
/// times a power of `base`.
pub fn round_up(value: f64, base: f64) -> f64 {
    let mut unit = 1.0;
    while value > 500.0 * unit && value.is_finite() {
        unit *= base;
    }
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
    steps.map(|step| step * unit).into_iter().find(|top| value <= *top).unwrap_or(value)
}

/// Divides until the number has at most three digits, or four below `base`.
fn scaled(value: f64, base: f64, units: &[&str; 7]) -> String {
    let mut value = value.max(0.0);
    let mut unit = 0;
    // What would be rounded up to `base` belongs to the next unit.
    while value >= base - 0.5 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let number = if unit == 0 { format!("{value:.0}") } else { digits(value) };
    if units[unit].is_empty() { number } else { format!("{number} {}", units[unit]) }
}

/// Three digits: `"1.20"`, `"12.0"`, `"120"`.
fn digits(value: f64) -> String {
    // The bounds are those of the rounded text, so that 9.996 isn't "10.00".
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: f64 = 1024.0;

    #[test]
    fn sizes_have_three_digits_and_an_iec_unit() {
        for (size, text) in [
            (0.0, "0 B"),
            (1.0, "1 B"),
            (1023.0, "1023 B"),
            (1024.0, "1.00 KiB"),
            (9.994 * KIB, "9.99 KiB"),
            (9.996 * KIB, "10.0 KiB"),
            (99.96 * KIB, "100 KiB"),
            (1023.4 * KIB, "1023 KiB"),
            (1023.6 * KIB, "1.00 MiB"),
            (1.2 * KIB * KIB * KIB, "1.20 GiB"),
            (u64::MAX as f64, "16.0 EiB"),
        ] {
            assert_eq!(bytes(size), text, "{size}");
        }
    }

    #[test]
    fn counts_are_separated_until_they_would_burst_their_column() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
            (9_999_999_999, "9,999,999,999"),
            (10_000_000_000, "10.0 G"),
            (u64::MAX, "18.4 E"),
        ] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn rates_keep_what_is_slow_visible() {
        for (rate, text) in [
            (0.0, "0/s"),
            (0.01, "0.1/s"),
            (0.5, "0.5/s"),
            (12.4, "12/s"),
            (99_999.0, "99,999/s"),
            (99_999.6, "100 k/s"),
            (2.5e9, "2.50 G/s"),
        ] {
            assert_eq!(count_per_second(rate), text, "{rate}");
        }
        assert_eq!(bytes_per_second(12.5 * KIB * KIB), "12.5 MiB/s");
    }

    #[test]
    fn nothing_is_wider_than_its_column() {
        let mut n = 1u64;
        while let Some(next) = n.checked_mul(3) {
            for n in [n - 1, n, n + 1] {
                assert!(bytes(n as f64).len() <= BYTES_WIDTH, "{}", bytes(n as f64));
                assert!(bytes_per_second(n as f64).len() <= RATE_WIDTH, "{n}");
                assert!(count_per_second(n as f64).len() <= RATE_WIDTH, "{n}");
                assert!(count(n).len() <= COUNT_WIDTH, "{n}");
            }
            n = next;
        }
    }

    #[test]
    fn a_part_is_neither_nothing_nor_all() {
        for (part, whole, text) in [
            (0, 10, "0.0%"),
            (1, 100_000, "<0.1%"),
            (45, 100, "45.0%"),
            (99_999, 100_000, ">99.9%"),
            (10, 10, "100.0%"),
            (0, 0, "-"),
        ] {
            assert_eq!(percent(part, whole), text);
        }
    }

    #[test]
    fn durations_and_times() {
        for (ns, text) in [
            (0, "0 ns"),
            (512, "512 ns"),
            (16_384, "16.4 µs"),
            (2_097_152, "2.10 ms"),
            (1_073_741_824, "1.07 s"),
            (549_755_813_888, "9.16 min"),
        ] {
            assert_eq!(duration_ns(ns, false), text);
        }
        assert_eq!(duration_ns(16_384, true), "16.4 us");
        assert_eq!(elapsed(125.9), "00:02:05");
        assert_eq!(elapsed(273_906.0), "3d 04:05:06");
        assert_eq!([signed(-3), signed(0), signed(1200)], ["-3", "0", "+1,200"]);
    }

    #[test]
    fn the_top_of_a_scale_is_round_and_never_below() {
        for (value, base, top) in [
            (0.0, 1024.0, 1.0),
            (3.0, 1024.0, 5.0),
            (501.0, 1024.0, 1024.0),
            (12.5 * KIB * KIB, 1024.0, 20.0 * KIB * KIB),
            (1500.0, 1000.0, 2000.0),
        ] {
            assert_eq!(round_up(value, base), top, "{value}");
        }
    }
}
