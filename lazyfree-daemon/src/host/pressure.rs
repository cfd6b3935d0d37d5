//! Time that tasks waited for memory, as the kernel's pressure stall information has it.

use procfs::{Current as _, MemoryPressure};

use crate::sample::Pressure;

/// Since boot. `None` without PSI: where it isn't built in or is switched off (`psi=0`), the kernel
/// has no such file or refuses to read it.
pub fn read() -> Option<Pressure> {
    MemoryPressure::current().ok().map(Pressure::from)
}

impl From<MemoryPressure> for Pressure {
    fn from(pressure: MemoryPressure) -> Self {
        Self { some_us: pressure.some.total, full_us: pressure.full.total }
    }
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;

    use super::*;

    #[test]
    fn takes_the_totals() {
        let text = "some avg10=2.13 avg60=0.44 avg300=0.09 total=724585\n\
                    full avg10=1.23 avg60=0.25 avg300=0.05 total=430518\n";
        let pressure = MemoryPressure::from_read(text.as_bytes()).unwrap();
        assert_eq!(Pressure::from(pressure), Pressure { some_us: 724_585, full_us: 430_518 });
    }
}
