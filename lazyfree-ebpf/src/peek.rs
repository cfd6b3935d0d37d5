//! Reads kernel words for the daemon, when it runs the program by hand (`BPF_PROG_TEST_RUN`).

use lazyfree_common::control::MAX_PEEKS;

use crate::{kernel::read, maps::PEEKS};

/// Replaces each address in the map by the word found there; what can't be read becomes 0.
#[inline(always)]
pub fn peek() {
    for index in 0..MAX_PEEKS {
        let Some(word) = PEEKS.get_ptr_mut(index) else { return };
        // SAFETY: the pointer comes from the map, and nobody else writes while a peek runs.
        let address = unsafe { *word };
        if address == 0 {
            return;
        }
        // SAFETY: as above.
        unsafe { *word = read(address).unwrap_or(0) };
    }
}
