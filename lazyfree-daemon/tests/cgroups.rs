//! Counts by cgroup, on a host that has them.

use std::time::Duration;

use lazyfree::host::{self, cgroups::Cgroups};

#[test]
fn no_cgroup_counts_more_than_the_host() {
    let mut cgroups = match Cgroups::open(Duration::from_secs(1)) {
        Ok(cgroups) => cgroups,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    cgroups.read(Duration::ZERO);
    let vmstat = host::vmstat().unwrap();
    let rows = cgroups.rows();
    assert!(!rows.is_empty(), "a hierarchy with the memory controller has counts");
    for row in rows {
        println!("{row:?}");
        assert!(row.path.starts_with('/'), "{row:?}");
        assert!(Some(row.pglazyfree) <= vmstat.get("pglazyfree"), "{row:?}");
        assert!(Some(row.pglazyfreed) <= vmstat.get("pglazyfreed"), "{row:?}");
    }
}
