//! Whether the memory that a plan needs is there, asked before any of it is mapped.
//!
//! Linux grants address space that it has no memory for and ends whoever uses it later, without a word. So the plan (the
//! segments, the firmware's private block and its stacks) is held against what can be had without swapping: the kernel's
//! `MemAvailable` and the limits of the control groups (version 2) that this process is in. Page cache in a group counts
//! as free there, as it does in `MemAvailable`: a pack that was just written would fill the group otherwise. Segments that
//! fit the reserved huge pages take nothing of either. What cannot be read limits nothing; others may take the memory in
//! between, so this is a clear refusal in the common case and no guarantee.

use crate::Error;
use estream_idl::call::Plan;
use estream_idl::status::{Refusal, Status};
use std::fs::read_to_string;
use std::path::{Component, Path};

/// Where version 2 of the control groups is mounted, alone or beside version 1.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The size of a reserved huge page that the arena asks for.
const HUGE: u64 = 2 << 20;

/// Refuses a plan that needs more than there is, with both numbers.
pub(crate) fn check(plan: &Plan) -> Result<(), Error> {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let meminfo = read("/proc/meminfo");
    let (limit, whose) = available(&meminfo, &read("/proc/self/cgroup"), &GROUPS.map(Path::new));
    compare(demand(plan, &meminfo), limit, &whose)
}

fn compare(needed: u64, limit: u64, whose: &str) -> Result<(), Error> {
    if needed <= limit {
        return Ok(());
    }
    let mut error = Error::refused(Refusal { status: Status::NoMemory, needed, limit, detail: 0 });
    error.message = format!("{}: {whose}", error.message);
    Err(error)
}

/// Bytes of ordinary memory that the plan takes.
fn demand(plan: &Plan, meminfo: &str) -> u64 {
    let segments = plan.segments.total_bytes();
    let firmware = plan.private_bytes.saturating_add(plan.stack_bytes);
    let count = |name| field(meminfo, name).unwrap_or(0);
    let reserved = match count("Hugepagesize:").saturating_mul(1024) {
        HUGE => count("HugePages_Free:").saturating_sub(count("HugePages_Rsvd:")).saturating_mul(HUGE),
        _ => 0,
    };
    if segments.next_multiple_of(HUGE) <= reserved { firmware } else { segments.saturating_add(firmware) }
}

/// The memory that can be had, and what bounds it.
fn available(meminfo: &str, membership: &str, mounts: &[&Path]) -> (u64, String) {
    let kibibytes = field(meminfo, "MemAvailable:");
    let system = kibibytes.map_or_else(total, |kibibytes| kibibytes.saturating_mul(1024));
    let mut least = (system, "the system has no more available".to_owned());
    // Version 2 is hierarchy 0, and every group on the way up bounds those below.
    let Some(group) = membership.lines().find_map(|line| line.strip_prefix("0::/")) else { return least };
    let inside = Path::new(group).components().all(|part| matches!(part, Component::Normal(_)));
    for mount in mounts {
        let place = if inside { mount.join(group) } else { mount.to_path_buf() };
        for folder in place.ancestors().take_while(|folder| folder.starts_with(mount)) {
            if let Some(room) = room(folder).filter(|&room| room < least.0) {
                least = (room, format!("the control group at {} allows no more", folder.display()));
            }
        }
    }
    least
}

/// Bytes that a control group may still take, where it has a limit.
fn room(group: &Path) -> Option<u64> {
    let read = |name: &str| read_to_string(group.join(name)).ok();
    // Without a limit the word is "max".
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let taken: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let cache = ["active_file", "inactive_file"].map(|name| field(&stat, name).unwrap_or(0));
    Some(limit.saturating_sub(taken.saturating_sub(cache[0].saturating_add(cache[1]))))
}

/// The number behind `name` at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words))?;
    words.next()?.parse().ok()
}

/// All memory of the machine, for systems that do not say what is available.
fn total() -> u64 {
    let info = rustix::system::sysinfo();
    // The fields' width is the platform's word.
    #[allow(clippy::useless_conversion)]
    u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::address::SegmentPages;
    use estream_idl::call::KernelSet;
    use std::fs;

    const MEMINFO: &str = "MemTotal:       24684096 kB\nMemFree:         6128928 kB\nMemAvailable:    2048 kB\n\
                           HugePages_Total:       8\nHugePages_Free:        6\nHugePages_Rsvd:        2\n\
                           Hugepagesize:       2048 kB\n";

    fn plan(pages: u32, private_bytes: u64) -> Plan {
        Plan {
            segments: SegmentPages([pages, 0, 0, 0, 0]),
            private_bytes,
            stack_bytes: 7,
            group: 1,
            banks: 1,
            depth: 1,
            threads: 1,
            kernels: KernelSet::SCALAR,
            row_chunk: 32,
            scratch_bytes: 0,
        }
    }

    #[test]
    fn the_plan_takes_its_segments_and_what_the_firmware_keeps() {
        assert_eq!(demand(&plan(3, 1000), ""), 3 * 4096 + 1000 + 7);
        assert_eq!(demand(&plan(3, u64::MAX), ""), u64::MAX);
        // Four huge pages of 2 MiB are free and unpromised: 2048 small ones.
        assert_eq!(demand(&plan(2048, 1000), MEMINFO), 1007);
        assert_eq!(demand(&plan(2049, 1000), MEMINFO), 2049 * 4096 + 1007);
        let giant = MEMINFO.replace("Hugepagesize:       2048", "Hugepagesize:    1048576");
        assert_eq!(demand(&plan(2048, 1000), &giant), 2048 * 4096 + 1007);
    }

    #[test]
    fn the_narrowest_of_system_and_groups_is_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let (root, leaf) = (folder.path(), folder.path().join("a/b"));
        fs::create_dir_all(&leaf).unwrap();
        let limit = |membership: &str| available(MEMINFO, membership, &[Path::new("/nowhere"), root]);
        let put = |group: &Path, name: &str, text: &str| fs::write(group.join(name), text).unwrap();
        let system = (2 << 20, "the system has no more available".to_owned());
        assert_eq!(limit("0::/a/b\n"), system, "groups without limits");
        put(&leaf, "memory.max", "max\n");
        put(&leaf, "memory.current", "5000\n");
        assert_eq!(limit("0::/a/b\n"), system);
        put(&root.join("a"), "memory.max", "1000000\n");
        put(&root.join("a"), "memory.current", "600000\n");
        assert_eq!(limit("9:name=systemd:/\n0::/a/b\n").0, 400_000, "a group above");
        put(&root.join("a"), "memory.stat", "anon 1\ninactive_file 70000\nactive_file 5000\nfile 90000\n");
        assert_eq!(limit("0::/a/b\n").0, 475_000, "cache counts as free");
        assert!(limit("0::/a/b\n").1.contains("/a allows"), "{}", limit("0::/a/b\n").1);
        put(&leaf, "memory.max", "4000\n");
        assert_eq!(limit("0::/a/b\n").0, 0, "a group that is full");
        assert_eq!(limit("4:memory:/a/b\n"), system, "version 1");
        assert_eq!(limit("0::/../a\n"), system, "a group outside of what can be seen");
        assert!(available("", "", &[]).0 >= 1 << 20, "a system that says nothing has all its memory");
    }

    #[test]
    fn a_refusal_names_both_numbers() {
        compare(77, 77, "").unwrap();
        let error = compare(78, 77, "the system has no more available").unwrap_err();
        assert_eq!((error.code, error.refusal.unwrap().limit), ("no_memory", 77));
        for part in ["needs 78 bytes", "has 77", "the system"] {
            assert!(error.message.contains(part), "{error}");
        }
    }
}
