//! Numbers for people.

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `2.50 GiB`; three digits, powers of 1,024.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    scaled(bytes as f64 / 1024.0, 1024.0, &UNITS)
}

/// `1.50 us`; three digits.
pub fn duration(nanoseconds: u64) -> String {
    if nanoseconds < 1000 {
        return format!("{nanoseconds} ns");
    }
    scaled(nanoseconds as f64 / 1e3, 1e3, &["us", "ms", "s"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while unit + 1 < units.len() && value >= step {
        value /= step;
        unit += 1;
    }
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn bytes_keep_three_digits() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4.00 KiB"),
            (10_230, "9.99 KiB"),
            (10_239, "10.0 KiB"),
            (32 << 20, "32.0 MiB"),
            (5 << 29, "2.50 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (number, text) in cases {
            assert_eq!(bytes(number), text, "{number}");
        }
    }

    #[test]
    fn durations_have_the_unit_that_suits() {
        let cases = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.50 us"),
            (20_000, "20.0 us"),
            (3_000_000, "3.00 ms"),
            (17_179_869_184, "17.2 s"),
            (3_600_000_000_000, "3600 s"),
        ];
        for (number, text) in cases {
            assert_eq!(duration(number), text, "{number}");
        }
    }
}
