//! Measures RDMA WRITE on two cards: goodput between two instants, and the stages of one write.
//!
//! Everything is counted in clocks of the cards, so a figure depends on the options and on nothing else.

mod explain;
mod latency;
pub mod limits;

use std::sync::Arc;

use thiserror::Error;
use verbena_abi::limits::{INLINE_ONE_UNIT, MAX_INLINE};
use verbena_host::cq::CompletionStatus;
use verbena_host::{access, Completion, Error as DriverError, SendQueue, Sge, StageCounts, WriteFlags};

pub use explain::{CardStages, StageUse};
pub use latency::{Latency, Part, Stage};
pub use limits::{limit, Bound, Traffic};

use crate::ends::{End, EndOptions};
use crate::fault::Fault;
use crate::ffi::CLOCK_NS;
use crate::{LinkConfig, PcieConfig, Threads, World, WorldConfig};

/// Clocks between two looks of the driver: 256 ns.
const STEP: u64 = 64;
/// Clocks without any arrival after which a measurement is given up.
const PATIENCE: u64 = 100_000;
/// Most requests under way on all QPs: what a completion queue holds.
const MOST_REQUESTS: u32 = 32_768;
/// Bytes under way that are waited for at the end, and compared. Of more the bench is given up: they take minutes.
const DRAINED: u64 = 16 << 20;
/// Bytes of the region that messages lie in, at least.
const REGION: u64 = 8 << 20;
/// Context of the request that ends a measurement.
const LAST: u64 = u64::MAX;
/// What B's memory holds before; a byte that was never written shows.
const BLANK: u8 = 0xC5;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions {
    /// Queue pairs that send.
    pub qps: u32,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// One request in so many makes a completion; the others are silent.
    pub signal_every: u32,
    /// B sends to A as well.
    pub both: bool,
    /// Messages that fit are inline data of their requests.
    pub inline: bool,
    /// Count what the stages of both cards do meanwhile.
    pub explain: bool,
    /// Clocks before the measurement.
    pub warm_up: u64,
    /// Clocks of the measurement.
    pub clocks: u64,
    /// Seed of everything that happens by chance.
    pub seed: u64,
    /// Both hosts.
    pub pcie: PcieConfig,
    /// The link.
    pub link: LinkConfig,
    /// Threads of the simulation.
    pub threads: Threads,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            qps: 1,
            mtu: 4096,
            signal_every: 16,
            both: false,
            inline: false,
            explain: false,
            warm_up: 20_000,
            clocks: 200_000,
            seed: 1,
            pcie: PcieConfig::default(),
            link: LinkConfig::default(),
            threads: Threads::default(),
        }
    }
}

/// Why there is no figure.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The simulation is stopped.
    #[error(transparent)]
    Stopped(#[from] Fault),
    /// The capture or the dump can't be written.
    #[error("cannot create the simulation: {0}")]
    Create(#[from] std::io::Error),
    /// A request failed.
    #[error("request {context} of QP {qpn} failed: {status:?}, syndrome {syndrome:#04x}")]
    Request {
        /// Number of the request.
        context: u64,
        /// Its QP.
        qpn: u32,
        /// How it ended.
        status: CompletionStatus,
        /// AETH syndrome.
        syndrome: u8,
    },
    /// Nothing arrives any more.
    #[error("nothing has arrived for {clocks} clocks; A counts {a}; B counts {b}")]
    Silent {
        /// How long.
        clocks: u64,
        /// Counters of A.
        a: String,
        /// Counters of B.
        b: String,
    },
    /// The wrong bytes, or in the wrong place.
    #[error("memory differs at byte {0} of the receiver's region")]
    Memory(usize),
}

/// Goodput with one size of messages.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Point {
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Path MTU, bytes.
    pub mtu: u32,
    /// Both directions at once; the figures are those of the slower one.
    pub both: bool,
    /// Messages were inline data of their requests.
    pub inline: bool,
    /// Requests of a QP under way, at most.
    pub depth: u32,
    /// Requests for which one doorbell is rung.
    pub doorbell_every: u32,
    /// One request in so many makes a completion.
    pub signal_every: u32,
    /// Clocks of the measurement.
    pub clocks: u64,
    /// Bytes of message data that arrived in them.
    pub payload_bytes: u64,
    /// Messages that this makes.
    pub messages: f64,
    /// Goodput, Gb/s.
    pub gbps: f64,
    /// Millions of messages a second.
    pub mmps: f64,
    /// What the wire carries at most, Gb/s.
    pub wire_gbps: f64,
    /// What PCIe carries at most, Gb/s.
    pub pcie_gbps: f64,
    /// The lower of both.
    pub bound: Bound,
    /// Goodput over the lower of both limits.
    pub share: f64,
    /// Frames that the MAC of the slower direction's receiver dropped for want of room: 0, or the figures mean nothing.
    pub dropped: u64,
    /// What the stages of A and B did, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<[CardStages; 2]>,
}

/// What one end sends.
struct Source {
    end: End,
    queues: Vec<SendQueue>,
    from: (u64, u32),
    to: (u64, u32),
    posted: u64,
    turn: usize,
}

/// Two cards that are connected and idle.
pub struct Bench {
    options: BenchOptions,
    depth: u32,
    inline_bytes: u32,
    world: Arc<World>,
    sources: [Source; 2],
}

/// Returns how many requests of `message` bytes are under way on each of `qps` queue pairs, so that the wire never waits for one.
pub fn depth(message: u32, qps: u32) -> u32 {
    // Eight times what the wire carries in 1,500 clocks: a queue pair may wait for its turn with both directions busy.
    let wanted = (8 * 75_000 / (u64::from(message) + 98) / u64::from(qps)).next_power_of_two() as u32;
    let least = if message >= 1 << 20 { 2 } else { 8 };
    wanted.clamp(least, (MOST_REQUESTS / qps).clamp(least, 512))
}

impl Bench {
    /// Opens both cards and connects the queue pairs, each `depth` requests deep, for messages of up to `largest` bytes.
    pub fn new(options: BenchOptions, depth: u32, largest: u32) -> Result<Self, BenchError> {
        let inline_bytes = inline_bytes(&options, largest);
        let BenchOptions { qps, mtu, seed, pcie, link, threads, .. } = options;
        let world = World::new(&WorldConfig { seed, pcie, link, threads, ..WorldConfig::default() })?;
        let agreed = EndOptions { qps, depth, mtu, inline_bytes, vlan: None, ipv6: false, seed };
        let bytes = (2 * u64::from(largest)).max(REGION) as usize;
        let rights = access::LOCAL_WRITE | access::REMOTE_WRITE;
        let ends = [End::open(&world, 0, &agreed, 2 * bytes, rights)?, End::open(&world, 1, &agreed, 2 * bytes, rights)?];
        ends[0].connect(&ends[1], &agreed)?;
        ends[1].connect(&ends[0], &agreed)?;
        // The lower half is sent, the upper half received into.
        let mut pattern = vec![0u8; bytes];
        for (word, place) in pattern.chunks_exact_mut(8).zip(1u64..) {
            word.copy_from_slice(&place.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        }
        for end in &ends {
            end.mr.memory().copy_in(0, &pattern)?;
            end.mr.memory().fill(bytes, bytes, BLANK)?;
        }
        let keys = [0, 1].map(|number: usize| (ends[number].mr.base_va() + bytes as u64, ends[number].mr.rkey()));
        let [a, b] = ends;
        let source = |end: End, to| {
            let queues = end.qps.iter().filter_map(|qp| qp.take_send_queue()).collect();
            let from = (end.mr.base_va(), end.mr.lkey());
            Source { end, queues, from, to, posted: 0, turn: 0 }
        };
        Ok(Self { options, depth, inline_bytes, world, sources: [source(a, keys[1]), source(b, keys[0])] })
    }

    /// Returns a bench for messages of `message` bytes: `idle`, if its queues are `depth` deep and its memory holds such a
    /// message, or else a new one. It takes longer to connect 256 queue pairs than to measure.
    pub fn prepare(idle: Option<Self>, options: BenchOptions, depth: u32, message: u32) -> Result<Self, BenchError> {
        match idle {
            Some(idle)
                if idle.depth == depth
                    && idle.inline_bytes == inline_bytes(&options, message)
                    && idle.sources[0].end.mr.memory().len() as u64 / 2 >= stride(message) =>
            {
                Ok(idle)
            }
            _ => Self::new(options, depth, message),
        }
    }

    /// Returns the simulation.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Measures goodput with messages of `message` bytes. What is under way at the end is waited for, and the receiver's memory
    /// compared; if it is more than 16 MiB, neither is done, and `None` takes the place of the bench.
    pub fn measure(mut self, message: u32) -> Result<(Point, Option<Self>), BenchError> {
        let BenchOptions { qps, mtu, signal_every, both, warm_up, clocks, pcie, .. } = self.options;
        let doorbell_every = (self.depth / 4).max(1);
        let senders = if both { 2 } else { 1 };
        let begin: [u64; 2] = self.sources.each_ref().map(|source| source.posted);
        // Registers are read before and after. A write alone, which takes no clock, begins and ends the counting, and comes as late to the card both times.
        let start = if self.options.explain { Some(self.held_stages()?) } else { None };
        self.run(message, doorbell_every, senders, warm_up)?;
        if start.is_some() {
            self.hold_stages(false)?;
        }
        let before = [0, 1].map(|number| self.world.counts(number).rx);
        self.run(message, doorbell_every, senders, clocks)?;
        let after = [0, 1].map(|number| self.world.counts(number).rx);
        let stages = match start {
            Some([a, b]) => {
                let end = self.held_stages()?;
                self.hold_stages(false)?;
                Some([end[0].since(&a), end[1].since(&b)].map(|counted| CardStages::new(counted.clocks(), counted.iter())))
            }
            None => None,
        };

        // What A sends arrives at B.
        let arrived = |sender: usize| after[1 - sender].payload - before[1 - sender].payload;
        let payload_bytes = (0..senders).map(arrived).min().unwrap_or(0);
        let dropped = (0..2).map(|number| after[number].dropped - before[number].dropped).sum();
        let gbps = payload_bytes as f64 * 8.0 / (clocks * CLOCK_NS) as f64;
        let messages = payload_bytes as f64 / f64::from(message);
        let (size, path) = (u64::from(message), u64::from(mtu));
        let inline = self.inline_bytes > 0;
        let traffic = Traffic { message: size, mtu: path, signal_every: signal_every.into(), both, inline };
        let (limit_gbps, bound) = limit(&traffic, &pcie);
        let point = Point {
            message_bytes: message,
            qps,
            mtu,
            both,
            inline,
            depth: self.depth,
            doorbell_every,
            signal_every,
            clocks,
            payload_bytes,
            messages,
            gbps,
            mmps: messages * 1000.0 / (clocks * CLOCK_NS) as f64,
            wire_gbps: limits::wire_gbps(size, path),
            pcie_gbps: limits::pcie_gbps(&traffic, &pcie),
            bound,
            share: gbps / limit_gbps,
            dropped,
            stages,
        };
        let under_way = u64::from(self.depth) * u64::from(qps) * size;
        if under_way > DRAINED {
            return Ok((point, None));
        }
        self.drain()?;
        for (sender, begin) in begin.into_iter().enumerate().take(senders) {
            self.check(sender, message, self.sources[sender].posted - begin)?;
        }
        Ok((point, Some(self)))
    }

    /// Closes everything, and sees to it that nothing is left on either card.
    pub fn close(self) -> Result<(), BenchError> {
        for Source { end, queues, .. } in self.sources {
            drop(queues);
            end.close()?;
        }
        Ok(())
    }

    fn hold_stages(&self, hold: bool) -> Result<(), BenchError> {
        for source in &self.sources {
            source.end.adapter.hold_stages(hold)?;
        }
        Ok(())
    }

    /// Stops the counting of stages on both cards, and reads it.
    fn held_stages(&self) -> Result<[StageCounts; 2], BenchError> {
        self.hold_stages(true)?;
        let read = |number: usize| self.sources[number].end.adapter.read_stages();
        Ok([read(0)?, read(1)?])
    }

    fn run(&mut self, message: u32, doorbell_every: u32, senders: usize, clocks: u64) -> Result<(), BenchError> {
        let end = self.world.clock() + clocks;
        let mut last = (self.arrived(), self.world.clock());
        while self.world.clock() < end {
            for source in &mut self.sources[..senders] {
                source.reap()?;
                source.post(message, doorbell_every, self.options.signal_every, self.inline_bytes > 0)?;
            }
            self.world.run(STEP.min(end - self.world.clock()))?;
            let arrived = self.arrived();
            if arrived != last.0 {
                last = (arrived, self.world.clock());
            } else {
                self.give_up_after(last.1)?;
            }
        }
        Ok(())
    }

    /// Waits for all requests. A last one of each queue, without bytes, tells that those before it are done, silent or not.
    fn drain(&mut self) -> Result<(), BenchError> {
        let mut missing = 0;
        let mut open: [Vec<usize>; 2] = self.sources.each_ref().map(|source| (0..source.queues.len()).collect());
        let mut last = self.world.clock();
        let mut arrived = self.arrived();
        loop {
            // Queues take turns, so all of them may be done at the same time, long after the first byte.
            let mut is_news = arrived != self.arrived();
            arrived = self.arrived();
            for (source, open) in self.sources.iter_mut().zip(&mut open) {
                let before = open.len();
                let mut failed = None;
                open.retain(|&index| {
                    let queue = &mut source.queues[index];
                    if queue.free_slots() == 0 {
                        return true;
                    }
                    failed = failed.take().or(queue.write(LAST, &[], source.to.0, source.to.1, WriteFlags::NONE).err());
                    false
                });
                if let Some(error) = failed {
                    return Err(error.into());
                }
                let posted = before - open.len();
                let done = source.reap()?;
                is_news |= posted + done != 0;
                missing += posted;
                missing -= done;
            }
            if missing == 0 && open.iter().all(Vec::is_empty) {
                return Ok(());
            }
            if is_news {
                last = self.world.clock();
            }
            self.give_up_after(last)?;
            self.world.run(STEP)?;
        }
    }

    fn give_up_after(&self, clock: u64) -> Result<(), BenchError> {
        let clocks = self.world.clock() - clock;
        if clocks < PATIENCE {
            return Ok(());
        }
        let [a, b] = self.sources.each_ref().map(|source| source.end.describe());
        Err(BenchError::Silent { clocks, a, b })
    }

    fn arrived(&self) -> u64 {
        (0..2).map(|number| self.world.counts(number).rx.payload).sum()
    }

    /// Compares what `count` messages of `sender` wrote.
    fn check(&self, sender: usize, message: u32, count: u64) -> Result<(), BenchError> {
        let region = self.sources[sender].end.mr.memory().len() / 2;
        let places = region as u64 / stride(message);
        let wrapped = self.sources[sender].posted;
        let first = wrapped.saturating_sub(count.min(places));
        let (mut sent, mut received) = (vec![0; message as usize], vec![0; message as usize]);
        for number in first..wrapped {
            let offset = (number % places * stride(message)) as usize;
            self.sources[sender].end.mr.memory().copy_out(offset, &mut sent)?;
            self.sources[1 - sender].end.mr.memory().copy_out(region + offset, &mut received)?;
            if let Some(place) = (0..sent.len()).find(|place| sent[*place] != received[*place]) {
                return Err(BenchError::Memory(region + offset + place));
            }
        }
        Ok(())
    }
}

/// Returns the inline data that queue pairs are made for: none, or as much as requests of one or of two units hold.
fn inline_bytes(options: &BenchOptions, message: u32) -> u32 {
    match message as usize {
        1..=INLINE_ONE_UNIT if options.inline => INLINE_ONE_UNIT as u32,
        1..=MAX_INLINE if options.inline => MAX_INLINE as u32,
        _ => 0,
    }
}

/// Returns how far apart messages lie: each begins a cache line.
fn stride(message: u32) -> u64 {
    u64::from(message).next_multiple_of(64)
}

/// Fails with the first of `completions` that is none of a success.
fn check_status(completions: &[Completion]) -> Result<(), BenchError> {
    match completions.iter().find(|one| !one.status.is_success()) {
        Some(&Completion { context, qpn, status, syndrome, .. }) => Err(BenchError::Request { context, qpn, status, syndrome }),
        None => Ok(()),
    }
}

impl Source {
    /// Posts to every queue with room for a whole batch, and rings its doorbell once.
    fn post(&mut self, message: u32, doorbell_every: u32, signal_every: u32, inline: bool) -> Result<(), BenchError> {
        let mut bytes = [0; MAX_INLINE];
        let places = self.end.mr.memory().len() as u64 / 2 / stride(message);
        let count = self.queues.len();
        for _ in 0..count {
            let queue = &mut self.queues[self.turn];
            self.turn = (self.turn + 1) % count;
            let batches = queue.free_slots() / doorbell_every;
            for _ in 0..batches * doorbell_every {
                let offset = self.posted % places * stride(message);
                let sge = Sge { va: self.from.0 + offset, len_bytes: message, lkey: self.from.1 };
                let is_silent = signal_every == 0 || self.posted % u64::from(signal_every) != 0;
                let flags = if is_silent { WriteFlags::DEFER | WriteFlags::SILENT_SUCCESS } else { WriteFlags::DEFER };
                let (to, rkey) = (self.to.0 + offset, self.to.1);
                if inline {
                    let bytes = &mut bytes[..message as usize];
                    self.end.mr.memory().copy_out(offset as usize, bytes)?;
                    queue.write_inline(self.posted, &[bytes], to, rkey, flags)?;
                } else {
                    queue.write(self.posted, &[sge], to, rkey, flags)?;
                }
                self.posted += 1;
            }
            queue.ring_doorbell();
        }
        Ok(())
    }

    /// Takes completions, and returns how many there were of last requests.
    fn reap(&mut self) -> Result<usize, BenchError> {
        let mut room = [Completion::default(); 64];
        let mut last = 0;
        loop {
            let count = self.end.cq.poll(&mut room);
            check_status(&room[..count])?;
            last += room[..count].iter().filter(|one| one.context == LAST).count();
            if count < room.len() {
                return Ok(last);
            }
        }
    }
}
