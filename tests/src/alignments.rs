//! Writes from every to every alignment: what the test samples and the command `alignments` runs whole.

use verbena_host::WriteFlags;
use verbena_sim::rng::Rng;

use crate::pair::{check_done, Connection, Link, Options, Pair, Write};

/// Path MTUs of RoCE.
pub const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// The longest of the lengths; as many bytes as all others of thousands of writes together.
pub const LONG: u32 = 1 << 20;
/// Bytes of each end's memory.
const REGION: usize = 2 << 20;
/// Bytes of a line of host memory.
const LINE: usize = 64;
/// Requests under way.
const DEPTH: u32 = 512;
/// Completions to wait for when the queue is full.
const BATCH: u64 = 64;

/// Returns the lengths that are worth a test at an MTU.
pub const fn lengths(mtu: u32) -> [u32; 13] {
    [0, 1, 2, 3, 4, 63, 64, 65, mtu - 1, mtu, mtu + 1, 2 * mtu + 3, LONG]
}

/// Address pairs modulo 64.
pub const PAIRS: usize = LINE * LINE;
/// Most SGEs of a write.
pub const SGES: usize = 4;

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Address of its first SGE, modulo 64.
    pub source: u8,
    /// Remote address, modulo 64.
    pub target: u8,
    /// Bytes.
    pub len: u32,
    /// Number of SGEs, empty ones included.
    pub sges: u8,
}

impl Case {
    /// Returns a write whose addresses are those of pair `pair`, below [`PAIRS`].
    pub const fn new(pair: usize, len: u32, sges: usize) -> Self {
        Self { source: (pair / LINE) as u8, target: (pair % LINE) as u8, len, sges: sges as u8 }
    }
}

/// Two cards between which cases of one MTU run.
#[derive(Debug)]
pub struct Runner {
    pair: Pair,
    connection: Connection,
    rng: Rng,
    /// Cases whose bytes are not compared yet, and where they went.
    placed: Vec<(Case, usize)>,
    /// First byte of the target behind them.
    end: usize,
    posted: u64,
    done: u64,
}

impl Runner {
    /// Opens two cards.
    pub fn new(mtu: u32, seed: u64) -> Self {
        let mut pair = Pair::new(Options { mtu, seed, region_bytes: REGION, cq_depth: DEPTH, ..Options::default() });
        pair.ends[1].region.clear(0, REGION);
        let connection = pair.connect(&Link { depth: DEPTH, sges: SGES as u32, ..Link::default() });
        Self { pair, connection, rng: Rng::new(seed, u64::from(mtu)), placed: Vec::new(), end: 0, posted: 0, done: 0 }
    }

    /// Returns the clocks that are done.
    pub fn clock(&self) -> u64 {
        self.pair.world.clock()
    }

    /// Runs one case after the other. Returns when all are complete, in order, and both memories are compared.
    pub fn run(&mut self, cases: impl IntoIterator<Item = Case>) {
        for case in cases {
            let mut to = self.place(case);
            if to + case.len as usize + LINE > REGION {
                self.compare();
                to = self.place(case);
            }
            self.post(case, to);
        }
        self.compare();
    }

    /// Closes the cards; panics if there was a completion too many.
    pub fn finish(self) {
        self.pair.settle("after all cases");
        self.pair.close([self.connection]);
    }

    /// Returns where the next write goes: at least a line of canaries behind the last one.
    fn place(&self, case: Case) -> usize {
        self.end.next_multiple_of(LINE) + LINE + usize::from(case.target)
    }

    fn post(&mut self, case: Case, to: usize) {
        if self.posted - self.done == u64::from(DEPTH) {
            self.reap(BATCH);
        }
        let write = Write { pieces: self.cut(case), to };
        // A doorbell each for some, one for several for others.
        let flags = if self.rng.percent(75) { WriteFlags::DEFER } else { WriteFlags::NONE };
        self.pair.post(&mut self.connection, 0, self.posted, &write, flags).expect("a slot is free");
        self.posted += 1;
        self.end = to + case.len as usize;
        self.placed.push((case, to));
    }

    /// Cuts the bytes of a write into its SGEs, some of which may be empty, from all over the source.
    fn cut(&mut self, case: Case) -> Vec<(usize, u32)> {
        let mut ends: Vec<u32> = (1..case.sges).map(|_| self.rng.below(u64::from(case.len) + 1) as u32).collect();
        ends.push(case.len);
        ends.sort_unstable();
        let mut start = 0;
        let mut pieces = Vec::with_capacity(ends.len());
        for end in ends {
            let len = end - start;
            let lines = (REGION - LINE - len as usize) / LINE;
            let residue = if pieces.is_empty() { u64::from(case.source) } else { self.rng.below(LINE as u64) };
            pieces.push((LINE * self.rng.below(lines as u64) as usize + residue as usize, len));
            start = end;
        }
        pieces
    }

    fn reap(&mut self, count: u64) {
        self.connection.queues[0].ring_doorbell();
        let found = self.pair.reap(0, count as usize, "the writes");
        check_done(&found, self.done..self.done + count);
        self.done += count;
    }

    /// Waits for everything, compares both memories, and makes the target blank again.
    fn compare(&mut self) {
        self.reap(self.posted - self.done);
        let [source, target] = &mut self.pair.ends;
        source.region.check("the source");
        if let Some((at, found, expected)) = target.region.difference() {
            let near = self.placed.iter().rev().find(|(_, to)| *to as isize - LINE as isize <= at);
            panic!("byte {at} of the target is {found:#04x}, not {expected:#04x}; the write there, or before it: {near:?}");
        }
        target.region.clear(0, REGION.min(self.end + LINE));
        self.placed.clear();
        self.end = 0;
    }
}
