//! The `lazyfree` command.
fn main() {}
