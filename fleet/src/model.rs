//! How large a fleet has to be: a function of measured figures, of what was assumed, and of what may not be exceeded.
//!
//! Measured figures are those of docs/performance.md, each with the words by which it is found there. Whatever nobody has measured
//! is called an assumption, however likely it is.

const KIB: f64 = 1024.0;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// In docs/performance.md, under these words.
    Measured(&'static str),
    Assumed(&'static str),
    /// What we decide to put up with.
    Chosen(&'static str),
}

/// Something the size of a fleet depends on. The order is that of [`Inputs::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    Planes,
    ActiveShare,
    MemoryIdle,
    MemoryActive,
    MemoryServer,
    DiskIdle,
    CpuRead,
    CpuWrite,
    WriteRate,
    JournalShare,
    Restart,
    ObjectRate,
    StoredBytes,
    ObjectBytes,
    EtcdBytesMax,
    EtcdOverhead,
    RestoreRate,
    ReadsOfActive,
    WritesOfActive,
    Cores,
    Memory,
    Headroom,
    RestartMax,
    RestoreMax,
    BlastMax,
    MoveShare,
}

pub struct Row {
    pub input: Input,
    pub value: f64,
    pub what: &'static str,
    pub source: Source,
}

#[derive(Clone, Debug)]
pub struct Inputs(Vec<f64>);

impl Inputs {
    pub const ALL: &'static [Row] = &[
        row(Input::Planes, 10_000_000.0, "planes", Source::Chosen("the question")),
        row(Input::ActiveShare, 0.01, "of them active", Source::Chosen("the question")),
        row(
            Input::MemoryIdle,
            1.6 * KIB,
            "bytes of memory, idle plane",
            Source::Measured("memory of an idle plane, 100,000 of them"),
        ),
        row(
            Input::MemoryActive,
            366.0 * KIB,
            "bytes of memory, active plane",
            Source::Measured("forked from a layer with 200 CRDs, when all are used at once"),
        ),
        row(
            Input::MemoryServer,
            30.0 * KIB * KIB,
            "bytes of memory, server alone",
            Source::Measured("the day's last build, with no planes"),
        ),
        row(
            Input::DiskIdle,
            1.2 * KIB,
            "bytes of disk, idle plane",
            Source::Measured("disk of an idle plane"),
        ),
        row(Input::CpuRead, 0.027, "ms of CPU, read", Source::Measured("get, 64 clients")),
        row(Input::CpuWrite, 0.19, "ms of CPU, write", Source::Measured("update, 64 clients")),
        row(
            Input::WriteRate,
            6_535.0,
            "writes/s, embedded store",
            Source::Measured("update, 64 clients, two cores"),
        ),
        row(Input::JournalShare, 0.5, "of that with three etcd", Source::Assumed("not measured yet")),
        row(
            Input::Restart,
            0.35 / 100_000.0,
            "s to be ready again, per plane",
            Source::Measured("ready again with 100,000 planes, after SIGKILL"),
        ),
        row(
            Input::ObjectRate,
            8_888.0,
            "objects/s copied into a cell",
            Source::Measured("create, 64 clients; an import is not measured by itself"),
        ),
        row(
            Input::StoredBytes,
            17.0 * KIB,
            "bytes stored by a plane",
            Source::Assumed("what it holds beside shared layers"),
        ),
        row(
            Input::ObjectBytes,
            KIB,
            "bytes of an object",
            Source::Measured("a ConfigMap of about 1 KB: what all figures are of"),
        ),
        row(
            Input::EtcdBytesMax,
            8.0 * GIB,
            "bytes of one etcd",
            Source::Assumed("etcd's documentation: suggested maximum"),
        ),
        row(
            Input::EtcdOverhead,
            1.5,
            "bytes in etcd for one stored",
            Source::Assumed("keys, pages, five minutes of history"),
        ),
        row(
            Input::RestoreRate,
            100e6,
            "bytes/s restored",
            Source::Assumed("one disk, one network; etcd's maintainers tell of 8 GB in a minute"),
        ),
        row(Input::ReadsOfActive, 5.0, "reads/s of an active plane", Source::Assumed("some controllers")),
        row(Input::WritesOfActive, 0.5, "writes/s of an active plane", Source::Assumed("some controllers")),
        row(Input::Cores, 8.0, "cores of a machine", Source::Chosen("three machines a cell")),
        row(
            Input::Memory,
            32.0 * GIB,
            "bytes of memory of a machine",
            Source::Chosen("etcd and a replica on each"),
        ),
        row(
            Input::Headroom,
            0.6,
            "of everything may be used",
            Source::Chosen("one machine of three may be away"),
        ),
        row(Input::RestartMax, 10.0, "s until a replica is ready again", Source::Chosen("")),
        row(
            Input::RestoreMax,
            300.0,
            "s until a lost cell is restored",
            Source::Chosen("the lease of 30 s comes before"),
        ),
        row(Input::BlastMax, 0.05, "of all planes in one cell", Source::Chosen("")),
        row(
            Input::MoveShare,
            0.2,
            "of a cell's writes for moves",
            Source::Chosen("the rate limit of placement"),
        ),
    ];

    pub fn get(&self, input: Input) -> f64 {
        self.0[input as usize]
    }

    #[must_use]
    pub fn scaled(&self, input: Input, factor: f64) -> Inputs {
        let mut changed = self.clone();
        changed.0[input as usize] *= factor;
        changed
    }
}

impl Default for Inputs {
    fn default() -> Inputs {
        Inputs(Inputs::ALL.iter().map(|row| row.value).collect())
    }
}

const fn row(input: Input, value: f64, what: &'static str, source: Source) -> Row {
    Row { input, value, what, source }
}

/// Something that a cell has only so much of, and how many planes that is enough for.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub name: &'static str,
    pub planes: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The tightest first.
    pub limits: Vec<Limit>,
    pub cells: f64,
    pub planes_of_cell: f64,
    pub machines: f64,
    pub memory_of_replica: f64,
    pub etcd_bytes_of_cell: f64,
    pub disk_of_replica: f64,
    pub writes_of_cell: f64,
    /// The homes of slots, which every router has.
    pub map_bytes: f64,
    /// What each router would have if it knew all planes by name.
    pub table_of_all_bytes: f64,
    pub restart_seconds: f64,
    pub restore_seconds: f64,
    pub moves_per_second: f64,
    pub cell_added_seconds: f64,
    pub blast_share: f64,
}

pub fn fleet(inputs: &Inputs) -> Fleet {
    let get = |input| inputs.get(input);
    let active = get(Input::ActiveShare);
    let room = get(Input::Headroom);
    let in_etcd = get(Input::StoredBytes) * get(Input::EtcdOverhead);
    let in_memory = get(Input::MemoryIdle) + active * get(Input::MemoryActive);
    let writes = active * get(Input::WritesOfActive);
    let journal = get(Input::WriteRate) * get(Input::JournalShare);
    // A read is served by one replica. A write is planned by one and made durable by all three.
    let cpu =
        active * (get(Input::ReadsOfActive) * get(Input::CpuRead)) + 3.0 * writes * get(Input::CpuWrite);
    let mut limits = vec![
        Limit { name: "size of etcd", planes: get(Input::EtcdBytesMax) * room / in_etcd },
        Limit { name: "writes of the journal", planes: journal * room / writes },
        Limit {
            name: "memory of a replica",
            planes: (get(Input::Memory) * room - get(Input::MemoryServer)) / in_memory,
        },
        Limit { name: "CPU of three replicas", planes: 3.0 * get(Input::Cores) * 1000.0 * room / cpu },
        Limit { name: "restart of a replica", planes: get(Input::RestartMax) / get(Input::Restart) },
        Limit {
            name: "restore of a lost cell",
            planes: get(Input::RestoreMax) * get(Input::RestoreRate) / in_etcd,
        },
        Limit { name: "blast radius", planes: get(Input::BlastMax) * get(Input::Planes) },
    ];
    limits.sort_by(|one, other| one.planes.total_cmp(&other.planes));
    let cells = (get(Input::Planes) / limits[0].planes).ceil().max(3.0);
    let planes_of_cell = get(Input::Planes) / cells;
    let objects = (get(Input::StoredBytes) / get(Input::ObjectBytes)).max(1.0);
    let moves_per_second =
        get(Input::ObjectRate) * get(Input::JournalShare) * get(Input::MoveShare) / objects;
    Fleet {
        cells,
        planes_of_cell,
        machines: 3.0 * cells,
        memory_of_replica: get(Input::MemoryServer) + planes_of_cell * in_memory,
        etcd_bytes_of_cell: planes_of_cell * in_etcd,
        disk_of_replica: planes_of_cell * (get(Input::DiskIdle) + get(Input::StoredBytes)),
        writes_of_cell: planes_of_cell * writes,
        map_bytes: 65_536.0 * 2.0,
        table_of_all_bytes: get(Input::Planes) * 100.0,
        restart_seconds: planes_of_cell * get(Input::Restart),
        restore_seconds: planes_of_cell * in_etcd / get(Input::RestoreRate),
        moves_per_second,
        cell_added_seconds: get(Input::Planes) / (cells + 1.0) / moves_per_second,
        blast_share: 1.0 / cells,
        limits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_stand_in_their_order() {
        for (index, row) in Inputs::ALL.iter().enumerate() {
            assert_eq!(row.input as usize, index, "{}", row.what);
        }
        assert_eq!(Inputs::ALL.last().map(|row| row.input), Some(Input::MoveShare));
    }

    #[test]
    fn the_tightest_limit_decides() {
        let inputs = Inputs::default();
        let before = fleet(&inputs);
        assert_eq!(before.limits[0].name, "size of etcd");
        let roomier = fleet(&inputs.scaled(Input::EtcdBytesMax, 10.0));
        assert_eq!(roomier.limits[0].name, "writes of the journal");
        assert!(roomier.cells < before.cells);
        // What does not bind changes nothing.
        assert_eq!(fleet(&inputs.scaled(Input::MemoryIdle, 2.0)).cells, before.cells);
        // Nobody's cell is over a limit.
        for limit in &before.limits {
            assert!(before.planes_of_cell <= limit.planes, "{}", limit.name);
        }
    }
}
