//! Packages from Debian's archive that are unpacked, not installed: the guests' kernels.

mod archive;
mod sources;
mod version;

pub use self::{archive::Archive, version::compare as compare_versions};
