//! What a process has used, from `/proc`: CPU of all its threads, memory that is resident.

use std::time::Duration;

use anyhow::Context as _;

/// The processes that make up one server: one for Polder, two for kube-apiserver and etcd, a third
/// where kube-controller-manager has a part.
#[derive(Clone)]
pub(crate) struct Process {
    pids: Vec<u32>,
    ticks_per_second: u64,
}

impl Process {
    pub(crate) fn new(pids: Vec<u32>) -> anyhow::Result<Process> {
        let process = Process { pids, ticks_per_second: rustix::param::clock_ticks_per_second() };
        process.cpu()?;
        Ok(process)
    }

    /// These and one more.
    pub(crate) fn with(&self, pid: u32) -> anyhow::Result<Process> {
        Process::new(self.pids.iter().copied().chain([pid]).collect())
    }

    /// User and system time so far, children excluded. Counts in ticks of 10 ms: measure over many requests.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let mut ticks = 0;
        for pid in &self.pids {
            ticks += stat_ticks(&read(*pid, "stat")?).with_context(|| format!("odd /proc/{pid}/stat"))?;
        }
        Ok(Duration::from_millis(ticks * 1000 / self.ticks_per_second))
    }

    /// Bytes of memory that are resident now.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for pid in &self.pids {
            bytes +=
                resident_bytes(&read(*pid, "status")?).with_context(|| format!("odd /proc/{pid}/status"))?;
        }
        Ok(bytes)
    }
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}: is process {pid} running?"))
}

/// utime + stime: fields 14 and 15; the second field is a name in parentheses that may contain anything.
fn stat_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 8 9 0 0 120 30 4 5 20 0 9 0";
        assert_eq!(stat_ticks(stat), Some(150));
        assert_eq!(stat_ticks("garbage"), None);
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  12 kB\n"), Some(12 * 1024));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let process = Process::new(vec![std::process::id()]).unwrap();
        assert!(process.resident().unwrap() > 100_000);
        assert!(Process::new(vec![u32::MAX]).is_err());
    }
}
