//! `lanefs stats` agrees with what clients have asked for, by operation, client, export and job.

use crate::fixture::{Fixture, failure, must};
use crate::idle::secret;
use crate::raw_client::{Raw, hello};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use wire::*;

/// The lanes of the server.
const LANE_COUNT: u16 = 2;

/// What a client has counted of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counted {
    request_count: u64,
    absent_count: u64,
    exists_count: u64,
    in_bytes: u64,
    out_bytes: u64,
}

impl Counted {
    fn add(&mut self, other: &Self) {
        self.request_count += other.request_count;
        self.absent_count += other.absent_count;
        self.exists_count += other.exists_count;
        self.in_bytes += other.in_bytes;
        self.out_bytes += other.out_bytes;
    }

    /// The same as `lanefs stats --json` has it.
    fn of(row: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{row}"));
        let errors = row["errors"].as_object().unwrap();
        let all: u64 = errors.values().map(number).sum();
        let [absent_count, exists_count] = ["absent", "exists"].map(|it| number(&errors[it]));
        assert_eq!(all, absent_count + exists_count, "{row}");
        Self {
            request_count: number(&row["requests"]),
            absent_count,
            exists_count,
            in_bytes: number(&row["in_bytes"]),
            out_bytes: number(&row["out_bytes"]),
        }
    }
}

/// A client that counts what it asks for and what it is answered.
struct Load {
    lanes: Vec<Raw>,
    rng: fastrand::Rng,
    counted: BTreeMap<&'static str, Counted>,
    files: Vec<InodeNo>,
}

impl Load {
    fn new(address: &str, secret: &Secret, client: u8, job: &'static str) -> Self {
        let lanes = (0..LANE_COUNT).map(|lane| {
            let at = ("up", lane);
            let hello = hello(secret.credential(), at, ClientUuid([client; 16]));
            let hello =
                Hello { host_name: Bytes(b"somewhere"), job: Bytes(job.as_bytes()), ..hello };
            Raw::of(address, secret, &hello).unwrap()
        });
        let (lanes, rng) = (lanes.collect(), fastrand::Rng::with_seed(client.into()));
        Self { lanes, rng, counted: BTreeMap::new(), files: Vec::new() }
    }

    fn ask<'a>(&mut self, op: Op, shard: ShardId, message: &impl Wire<'a>, bulk: &[u8]) -> Vec<u8> {
        let lane = self.lanes[0].map.lane(shard);
        let answer = self.lanes[usize::from(lane.0)].answer(op, shard, message, bulk);
        let counted = self.counted.entry(op.row().name).or_default();
        let bytes = |parts: [usize; 2]| u64::try_from(HEADER_BYTES + parts[0] + parts[1]).unwrap();
        counted.request_count += 1;
        counted.in_bytes += bytes([message.to_bytes().len(), bulk.len()]);
        // A token has its length behind it.
        let token_bytes = if answer.token.is_empty() { 0 } else { answer.token.len() + 4 };
        counted.out_bytes += bytes([answer.message.len() + token_bytes, answer.bulk.len()]);
        let status = answer.reply.status;
        assert!(matches!(status, Status::Ok | Status::NotFound | Status::Exists), "{status:?}");
        counted.absent_count += u64::from(status == Status::NotFound);
        counted.exists_count += u64::from(status == Status::Exists);
        answer.message
    }

    fn create(&mut self, text: &str) -> Vec<u8> {
        let create = Create {
            caller: Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) },
            parent: InodeNo::ROOT,
            name: Name::new(text.as_bytes()).unwrap(),
            mode: 0o644,
            umask: 0,
            exclusive: true,
            handle: None,
            behind: None,
        };
        self.ask(Op::Create, InodeNo::ROOT.shard(), &create, &[])
    }

    /// One request, by chance.
    fn step(&mut self, client: u8) {
        let root = InodeNo::ROOT;
        let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };
        let file = self.rng.choice(self.files.iter()).copied();
        match (self.rng.u8(..10), file) {
            (0..3, _) => {
                let _attributes =
                    self.ask(Op::Getattr, root.shard(), &Getattr { inode: root }, &[]);
            }
            (3..5, _) => {
                let name = Name::new(b"absent").unwrap();
                let lookup = Lookup { caller, parent: root, name };
                assert!(self.ask(Op::Lookup, root.shard(), &lookup, &[]).is_empty());
            }
            (5, _) => assert!(self.create("same").is_empty()),
            (6, _) | (_, None) => {
                let text = format!("{client}-{}", self.files.len());
                let created = self.create(&text);
                self.files.push(Created::decode_all(&created).unwrap().attr.inode);
            }
            (7..9, Some(inode)) => {
                let bytes = vec![7; self.rng.usize(1..9_000)];
                let clears = ClearPrivileges::Nothing;
                let write = Write { inode, file_offset: 0, append: false, clears };
                let shard = self.lanes[0].map.data_shard(inode, 0);
                let _written = self.ask(Op::Write, shard, &write, &bytes);
            }
            (_, Some(inode)) => {
                let read = Read { inode, file_offset: 0, read_bytes: 4096, accesses: false };
                let shard = self.lanes[0].map.data_shard(inode, 0);
                let _read = self.ask(Op::Read, shard, &read, &[]);
            }
        }
    }

    fn total(&self) -> Counted {
        self.counted.values().fold(Counted::default(), |mut sum, counted| {
            sum.add(counted);
            sum
        })
    }
}

/// The rows of `lanefs stats --json`.
fn stats(fixture: &Fixture, arguments: &[&str]) -> Vec<Value> {
    let said = must(fixture.lanefs(["stats", "--json"]).args(arguments));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(rows: &'a [Value], (by, name): (&str, &str)) -> &'a Value {
    let found = rows.iter().find(|row| row["by"] == by && row[by] == name);
    found.unwrap_or_else(|| panic!("no {by} {name} in {rows:?}"))
}

#[test]
fn counters_agree_with_the_load_generator_by_operation_client_and_in_total() {
    let Some(fixture) = Fixture::new("stats_agree") else { return };
    let lanes = LANE_COUNT.to_string();
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", &lanes, "--leases", "off"]);
    let secret = secret(&fixture);
    // Its name is there for all.
    let mut first = Load::new(&server.address, &secret, 1, "build");
    assert!(!first.create("same").is_empty());
    let clients = [first].into_iter().chain(
        [(2, "build"), (3, "test"), (4, "")]
            .map(|(client, job)| Load::new(&server.address, &secret, client, job)),
    );
    let threads: Vec<_> = (1..)
        .zip(clients)
        .map(|(client, mut load): (u8, Load)| {
            std::thread::spawn(move || {
                (0..400).for_each(|_| load.step(client));
                load
            })
        })
        .collect();
    let loads: Vec<Load> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let rows = stats(&fixture, &[&server.address, "--by", "op,client,export,job,lane"]);

    let mut by_op: BTreeMap<&str, Counted> = BTreeMap::new();
    for (op, counted) in loads.iter().flat_map(|load| &load.counted) {
        by_op.entry(*op).or_default().add(counted);
    }
    assert!(by_op.len() == 5 && by_op.values().all(|counted| counted.request_count > 20));
    for (op, counted) in by_op {
        let row = of(&rows, ("op", op));
        assert_eq!(Counted::of(row), counted, "{op}");
        for phase in ["queue", "execution", "commit"] {
            assert_eq!(row["phase_us"][phase]["count"], counted.request_count, "{op}: {phase}");
        }
    }
    // Lanes commit what they have: some replies waited for that.
    assert!(of(&rows, ("op", "create"))["phase_us"]["commit"]["sum"].as_u64() > Some(0));
    for (client, load) in (1..).zip(&loads) {
        let uuid = format!("{:02x}", client).repeat(16);
        let row = of(&rows, ("client", &uuid));
        assert_eq!(Counted::of(row), load.total(), "client {client}");
        assert_eq!((&row["host"], &row["export"]), (&"somewhere".into(), &"up".into()));
    }
    let sum = |loads: &[Load]| {
        loads.iter().fold(Counted::default(), |mut sum, load| {
            sum.add(&load.total());
            sum
        })
    };
    assert_eq!(Counted::of(of(&rows, ("job", "build"))), sum(&loads[..2]));
    assert_eq!(Counted::of(of(&rows, ("job", "test"))), sum(&loads[2..3]));
    let all = sum(&loads);
    assert_eq!(Counted::of(of(&rows, ("export", "up"))), all);
    // In total also what `lanefs stats` itself has asked for.
    let lanes: Vec<&Value> = rows.iter().filter(|row| row["by"] == "lane").collect();
    let [total] = lanes.iter().filter(|row| row["lane"].is_null()).collect::<Vec<_>>()[..] else {
        panic!("{lanes:?}")
    };
    assert_eq!(lanes.len(), usize::from(LANE_COUNT) + 1);
    let requests = |row: &Value| row["requests"].as_u64().unwrap();
    let within = all.request_count..=all.request_count + all.request_count / 50;
    assert!(within.contains(&requests(total)), "{total}");
    let sum_of = |by: &str| rows.iter().filter(|row| row["by"] == by).map(requests).sum::<u64>();
    assert_eq!(["op", "client", "export", "job"].map(sum_of), [requests(total); 4]);
    let of_lanes = lanes.iter().filter(|row| !row["lane"].is_null()).map(|row| requests(row));
    assert_eq!(of_lanes.sum::<u64>(), requests(total));
}

#[test]
fn stats_are_shown_as_tables_csv_and_rates() {
    let Some(fixture) = Fixture::new("stats_shown") else { return };
    let (code, stderr) = failure(&fixture.run(["stats"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("no server runs here"), "{stderr}");
    let server = fixture.serve("127.0.0.1:0");
    let options = ["--export", "up", "--job", "a job, said twice", "-o", "job=nightly"];
    let mount = fixture.mount(&server.address, "mnt", &options);
    for count in 0..20 {
        fs::write(mount.dir.join(format!("{count}")), "contents").unwrap();
    }
    // Where nothing is named it is the one that runs here; a mount is asked itself.
    let store = fixture.path("store");
    let dir = mount.dir.to_str().unwrap().to_owned();
    for target in [None, Some(server.address.as_str()), store.to_str(), Some(dir.as_str())] {
        let rows = stats(&fixture, &target.into_iter().chain(["--by=job"]).collect::<Vec<_>>());
        let row = of(&rows, ("job", "nightly"));
        assert!(row["requests"].as_u64() >= Some(20), "{row}");
    }
    let text = must(&mut fixture.lanefs(["stats", "--by", "op,job,lane"]));
    let has = |begin: &[&str]| {
        let begins =
            |line: &str| line.split_whitespace().take(begin.len()).eq(begin.iter().copied());
        assert!(text.lines().any(begins), "{begin:?}: {text}");
    };
    has(&["OP", "REQUESTS", "ERRORS", "RECEIVED", "SENT", "QUEUE", "p50/p99", "EXECUTION"]);
    has(&["create", "20", "0"]);
    has(&["JOB", "REQUESTS"]);
    has(&["nightly"]);
    has(&["COUNTER", "LANE", "0"]);
    has(&["inodes"]);
    let csv = must(&mut fixture.lanefs(["stats", "--csv"]));
    let creates = csv.lines().find(|line| line.contains(",create,") && line.contains(",requests,"));
    assert_eq!(creates.and_then(|line| line.rsplit(',').next()), Some("20"), "{csv}");
    // In an interval nothing was created.
    let interval = ["--interval", "10ms", "--count", "2"];
    let rows = stats(&fixture, &interval);
    let created: Vec<&Value> = rows.iter().filter(|row| row["op"] == "create").collect();
    assert_eq!(created.len(), 2);
    for row in created {
        assert_eq!(row["requests"], 0);
        assert!(row["interval_s"].as_f64() > Some(0.0), "{row}");
    }
    mount.stop();
    let (code, stderr) =
        failure(&fixture.run(["stats", "127.0.0.1:1", "--connect-timeout", "10ms"]));
    assert_eq!(code, 3, "{stderr}");
    let long = "x".repeat(65);
    let (code, stderr) = failure(&fixture.run(["mount", "127.0.0.1:1", &dir, "--job", &long]));
    assert_eq!(code, 2, "{stderr}");
}
