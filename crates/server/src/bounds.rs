//! How much the server takes from its clients, and for how long. Nobody sets these but tests: what is right for a server
//! follows from the machine it runs on.

use std::time::Duration;

/// Patience and caps, for everybody together.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A client that does not finish its handshake in time is dropped.
    pub handshake_patience: Duration,
    /// A client that does not send the head of a request in time is dropped. On HTTP/1.1 this is also how long a connection
    /// may be idle.
    pub head_patience: Duration,
    /// A client that takes nothing of what it is sent for so long is dropped.
    pub send_patience: Duration,
    /// An HTTP/2 connection that nothing was asked on for this long, or at most twice as long, is closed. Upstream
    /// does so after 90 seconds.
    pub idle_check_every: Duration,
    /// How long requests in flight may take to finish when the server stops.
    pub drain_patience: Duration,
    /// Connections at a time; more are turned away before anything is spent on them.
    pub connections_max: usize,
    /// What the bodies of all requests and answers may take together.
    pub in_flight_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            handshake_patience: Duration::from_secs(10),
            head_patience: Duration::from_secs(30),
            send_patience: Duration::from_secs(60),
            idle_check_every: Duration::from_secs(60),
            drain_patience: Duration::from_secs(30),
            connections_max: connections_max(files_max()),
            in_flight_bytes_max: in_flight_bytes_max(memory_bytes()),
        }
    }
}

/// Of the files the process may have open a quarter is for everything but clients: the store, logs, calls to others. Whoever
/// opens connections without end takes none of those.
fn connections_max(files: Option<usize>) -> usize {
    const MOST: usize = 100_000;
    files.map_or(MOST, |files| (files / 4 * 3).clamp(1, MOST))
}

/// How many files this process may have open, if there is a limit.
fn files_max() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// An eighth of the memory there is, within reason.
fn in_flight_bytes_max(memory: Option<usize>) -> usize {
    const MIB: usize = 1024 * 1024;
    memory.map_or(512 * MIB, |memory| (memory / 8).clamp(128 * MIB, 4096 * MIB))
}

/// The memory this process may use: the machine's, or less if its control group says so.
fn memory_bytes() -> Option<usize> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: usize = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        kib.checked_mul(1024)
    });
    machine.into_iter().chain(group_bytes(read)).min()
}

/// What the process's control group may use, or any group around it: the least counts. Of both versions of control groups;
/// in a container the path may be one of the host's, of which only the root is to be seen.
fn group_bytes(read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let ancestors = path.match_indices('/').map(|(at, _)| &path[..at]);
        let paths = ancestors.chain([path.trim_end_matches('/')]);
        paths.filter_map(|path| read(&format!("{mount}{path}/{file}"))?.trim().parse().ok()).collect()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_memory_is_for_bodies() {
        let check = |memory: Option<usize>, expected_mib: usize| {
            assert_eq!(in_flight_bytes_max(memory), expected_mib << 20, "{memory:?}");
        };
        check(Some(16 << 30), 2048);
        check(Some(256 << 20), 128);
        check(Some(1 << 40), 4096);
        check(None, 512);
    }

    #[test]
    fn clients_leave_files_for_the_server() {
        for (files, expected) in
            [(None, 100_000), (Some(1 << 20), 100_000), (Some(1024), 768), (Some(256), 192), (Some(0), 1)]
        {
            assert_eq!(connections_max(files), expected, "{files:?}");
        }
        assert!(!cfg!(target_os = "linux") || files_max().is_some(), "the limit is found");
    }

    #[test]
    fn the_narrowest_control_group_counts() {
        let check = |files: &[(&str, &str)], expected: Option<usize>| {
            let read =
                |path: &str| files.iter().find(|(own, _)| *own == path).map(|(_, text)| format!("{text}\n"));
            assert_eq!(group_bytes(read), expected, "{files:?}");
        };
        let unit = ("/proc/self/cgroup", "0::/system.slice/polder.service");
        check(&[], None);
        check(&[unit], None);
        let own = ("/sys/fs/cgroup/system.slice/polder.service/memory.max", "1073741824");
        check(&[unit, own], Some(1 << 30));
        check(&[unit, own, ("/sys/fs/cgroup/system.slice/memory.max", "max")], Some(1 << 30));
        check(&[unit, own, ("/sys/fs/cgroup/system.slice/memory.max", "4096")], Some(4096));
        check(&[unit, ("/sys/fs/cgroup/memory.max", "8192")], Some(8192));
        let container = ("/proc/self/cgroup", "0::/");
        check(&[container, ("/sys/fs/cgroup/memory.max", "8192")], Some(8192));
        let first = ("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/docker/a\n0::/");
        let files = [
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes",
        ];
        check(&[first, (files[0], "9223372036854771712"), (files[1], "8192")], Some(8192));
    }
}
