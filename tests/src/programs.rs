//! Random programs of an NDK consumer, and the small model of the contract that they are held to.
//!
//! A program creates pairs of QPs on the CQs of both sides, connects them, posts with flags of all kinds, flushes, disconnects, closes, arms, moderates,
//! and polls, in any order, in hosts that are fast or slow, over a link that may lose, repeat, reorder and corrupt frames. The model knows what was accepted, not
//! when anything happens. It demands:
//!
//! * each accepted request makes one entry at most, on the CQ of its queue, and exactly one unless it was silent and succeeded;
//! * entries of a queue come in the order of posting; behind one that failed every request has an entry, silent or not, that says cancelled;
//! * a queue takes as many requests as it was made for, no more and no less; none is taken after a flush or a disconnect;
//! * while nobody has ended the connection, no request fails and there is no disconnect event; a request with a wrong token never succeeds;
//! * a write that succeeded has its bytes in the peer's memory, as they were when it was posted, or those of a later write of its queue to the same
//!   place, and nothing is anywhere else; of a source not a byte is changed, and it can be used again when the entry is there,
//!   whatever that says, or at once if the request was inline;
//! * an entry behind an arm makes a notification;
//! * when everything is closed, the cards reach no more memory than before, no number of an object is in use that was not, and no callback comes
//!   any more;
//! * each connection was counted once at each end and none is left; over a good link one card has taken the frames and octets that the other one sent.

use std::ops::{AddAssign, Range};

use proptest::prelude::*;
use serde::Serialize;
use verbena_abi::limits;
use verbena_abi::regs::Counter;
use verbena_host::ndk::NtStatus;
use verbena_host::ObjectCounts;
use verbena_ndk::abi::*;
use verbena_sim::{LinkConfig, PcieConfig, WorldConfig};

use crate::ndk::{
    nt, on_done, Bench, Call, Connected, Entry, QpSize, Region, Slot, CANARY, CANCELLED, CONNECTION_INVALID, PENDING, SUCCESS,
};
use crate::{close, ndk};

/// Bytes of a source and of a sink. In a source each write has a place of its own, in a sink each queue has.
/// What does not fit any more is not posted.
const SPACE: usize = 64 * 1024;
/// Bytes between two places, at least, and most bytes that are left out besides.
const GAP: usize = 32;
/// What a source is overwritten with when nobody may read it any more.
const SCRIBBLE: u8 = 0xFF;
/// CQs of a side.
const CQS: usize = 2;
/// Most pairs of QPs of a program.
const MOST_PAIRS: usize = 6;
/// Most inline bytes of a write, and longest write of most.
const MOST_INLINE: usize = 96;
/// Most SGEs of a write.
const MOST_SGES: usize = 4;
/// Longest write: of three packets.
const LONGEST: usize = 9_000;
/// Clocks of a step: a fraction of what a command of the card takes, which is what most steps wait for.
const STEP: u64 = 20;
/// Clocks that a flush may take.
const FLUSH: u64 = 20_000;
/// Clocks that the requests of a connection may take: far more than all retries of a few of them.
const PATIENCE: u64 = 400_000;
/// Clocks after the last close of a program in which nothing may be called.
const SILENCE: u64 = 300;
/// The same for all programs on a pair of cards, at its end: longer than a timeout, and than any moderation here.
const LONG_SILENCE: u64 = 20_000;

const ACCESS_VIOLATION: NTSTATUS = nt(NtStatus::ACCESS_VIOLATION);
const BUFFER_OVERFLOW: NTSTATUS = nt(NtStatus::BUFFER_OVERFLOW);
const INSUFFICIENT_RESOURCES: NTSTATUS = nt(NtStatus::INSUFFICIENT_RESOURCES);
const IO_TIMEOUT: NTSTATUS = nt(NtStatus::IO_TIMEOUT);
const NO_MORE_ENTRIES: NTSTATUS = nt(NtStatus::NO_MORE_ENTRIES);

/// A program: what a consumer does, in order.
#[derive(Clone, Debug)]
pub struct Program {
    ops: Vec<Op>,
    /// What is outstanding in the end is waited for, before anything is closed.
    waits: bool,
    end: End,
}

/// One step. `pair` is taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Two QPs with queues of `depth` that take `inline_bytes`, connected. Initiator requests and receives complete on these CQs of their sides.
    Connect { depth: u32, inline_bytes: u32, cqs: [usize; 2] },
    /// A write.
    Write { pair: usize, side: usize, write: Write },
    /// A receive.
    Receive { pair: usize, side: usize },
    /// `NdkFlush`.
    Flush { pair: usize, side: usize },
    /// `NdkDisconnect`.
    Disconnect { pair: usize, side: usize },
    /// `NdkCloseConnector`.
    CloseConnector { pair: usize, side: usize },
    /// `NdkCloseQp`.
    CloseQp { pair: usize, side: usize },
    /// `NdkArmCq`.
    Arm { side: usize, cq: usize, kind: u32 },
    /// `NdkControlCqInterruptModeration`.
    Moderate { side: usize, cq: usize, interval: u32, count: u32 },
    /// Up to `most` entries are taken.
    Poll { side: usize, cq: usize, most: usize },
    /// Time passes.
    Run { clocks: u64 },
}

/// A write of `len` bytes from `sges` places, some of which may have no bytes.
#[derive(Clone, Copy, Debug)]
struct Write {
    flags: u32,
    len: usize,
    sges: usize,
    fault: Fault,
    /// Bytes that are left out before its places in source and sink.
    shifts: [usize; 2],
    /// It goes over an earlier write of its queue, this many bytes into the place of that one as far as there is room, instead of to a new place.
    over: Option<usize>,
}

/// What is wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// Its local tokens.
    Local,
    /// Its remote token.
    Remote,
}

/// What is done first in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All QPs are flushed.
    Flush,
    /// All connectors are closed.
    CloseConnectors,
    /// All QPs are closed; their connectors last.
    CloseQps,
}

/// Returns the programs of up to `longest` steps behind the first connection, most of which are much shorter: what breaks in few steps is found in
/// them sooner.
pub fn programs(longest: usize) -> impl Strategy<Value = Program> {
    let which = || (0usize..8, 0usize..2);
    let cq = || 0..CQS;
    let connect = (1u32..17, prop_oneof![Just(32u32), Just(MOST_INLINE as u32)], [cq(), cq()]);
    let connect = connect.prop_map(|(depth, inline_bytes, cqs)| Op::Connect { depth, inline_bytes, cqs });
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(silent, fence, inline, defer)| {
        let bit = |set, flag| if set { flag } else { 0 };
        bit(silent, NDK_OP_FLAG_SILENT_SUCCESS)
            | bit(fence, NDK_OP_FLAG_READ_FENCE)
            | bit(inline, NDK_OP_FLAG_INLINE)
            | bit(defer, NDK_OP_FLAG_DEFER)
    });
    let len = prop_oneof![20 => 0..=MOST_INLINE, 1 => MOST_INLINE..=LONGEST];
    let fault = prop_oneof![80 => Just(Fault::None), 1 => Just(Fault::Local), 1 => Just(Fault::Remote)];
    let sges = prop_oneof![3 => 1..=2usize, 1 => 0..=MOST_SGES];
    let over = prop_oneof![1 => Just(None), 1 => (0..=LONGEST).prop_map(Some)];
    let write = (flags, len, sges, fault, [0..GAP, 0..GAP], over);
    let write = write.prop_map(|(flags, len, sges, fault, shifts, over)| Write { flags, len, sges, fault, shifts, over });
    let write = (which(), write).prop_map(|((pair, side), write)| Op::Write { pair, side, write });
    let op = prop_oneof![
        6 => connect.clone(),
        100 => write,
        6 => which().prop_map(|(pair, side)| Op::Receive { pair, side }),
        2 => which().prop_map(|(pair, side)| Op::Flush { pair, side }),
        1 => which().prop_map(|(pair, side)| Op::Disconnect { pair, side }),
        1 => which().prop_map(|(pair, side)| Op::CloseConnector { pair, side }),
        1 => which().prop_map(|(pair, side)| Op::CloseQp { pair, side }),
        8 => (0usize..2, cq(), 0u32..3).prop_map(|(side, cq, kind)| Op::Arm { side, cq, kind }),
        2 => (0usize..2, cq(), 0u32..40, 0u32..9).prop_map(|(side, cq, interval, count)| Op::Moderate { side, cq, interval, count }),
        24 => (0usize..2, cq(), 1usize..20).prop_map(|(side, cq, most)| Op::Poll { side, cq, most }),
        36 => prop_oneof![3 => 1u64..50, 2 => 50u64..400, 1 => 400u64..2000].prop_map(|clocks| Op::Run { clocks }),
    ]
    .boxed();
    let up_to = |most: usize| prop::collection::vec(op.clone(), 1..=most.min(longest));
    let ops = prop_oneof![6 => up_to(20), 3 => up_to(60), 1 => up_to(longest)];
    let end = prop_oneof![Just(End::Flush), Just(End::CloseConnectors), Just(End::CloseQps)];
    (connect, ops, any::<bool>(), end).prop_map(|(first, mut ops, waits, end)| {
        ops.insert(0, first);
        Program { ops, waits, end }
    })
}

/// The hosts of two cards and the link between them.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    seed: u64,
    pcie: PcieConfig,
    link: LinkConfig,
}

/// Returns environments, half of them with a link on which nothing goes wrong.
pub fn environments() -> impl Strategy<Value = Environment> {
    // Most hosts are faster than any real one: much then happens at about the same time, and more programs fit into an hour.
    let read = (prop_oneof![3 => 8u64..40, 1 => 40u64..300], 0u64..40);
    let mmio = prop_oneof![3 => 2u64..20, 1 => 20u64..100];
    let latency = 110u64..250;
    let stall = prop_oneof![3 => Just(0u8), 1 => 1u8..30];
    let loss = prop_oneof![1 => Just(0u32), 1 => 1_000u32..20_000];
    (any::<u64>(), read, mmio, latency, stall, loss).prop_map(
        |(seed, (read_latency, read_jitter), mmio_latency, latency, stall_percent, loss)| {
            let pcie = PcieConfig { read_latency, read_jitter, mmio_latency, stall_percent, ..PcieConfig::default() };
            let link = LinkConfig { latency, stall_percent, ..LinkConfig::default() };
            Environment { seed, pcie, link }.with_loss(loss)
        },
    )
}

impl Environment {
    /// Returns the same, with a link that loses `ppm` of a million frames, repeats and reorders as many, and corrupts half as many.
    #[must_use]
    pub fn with_loss(self, ppm: u32) -> Self {
        let link = LinkConfig { loss_ppm: ppm, duplicate_ppm: ppm, reorder_ppm: ppm, corrupt_ppm: ppm / 2, ..self.link };
        Self { link, ..self }
    }

    /// Returns two cards in this environment.
    pub fn cards(self) -> Cards {
        let Self { seed, pcie, link } = self;
        // The shortest timeout there is, and all retries.
        let retries = (link.loss_ppm != 0).then_some((1, 7));
        let mut bench = Bench::with_world(WorldConfig { seed, pcie, link, ..WorldConfig::default() }, retries);
        bench.step_clocks = STEP;
        Cards { bench, ended: Vec::new(), is_lossy: link.loss_ppm != 0 }
    }
}

/// What became of the requests of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Programs that ran.
    pub programs: u64,
    /// Their steps.
    pub steps: u64,
    /// Clocks that they took.
    pub clocks: u64,
    /// Pairs of QPs that they connected.
    pub pairs: u64,
    /// Requests that were accepted.
    pub accepted: u64,
    /// Requests that were refused inline: the queue was full, the connection over, or the data too long.
    pub refused: u64,
    /// Accepted requests with an entry that says success.
    pub succeeded: u64,
    /// Accepted requests with an entry that says anything else.
    pub failed: u64,
    /// Accepted requests without an entry, which were silent and succeeded.
    pub silent: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.steps += other.steps;
        self.clocks += other.clocks;
        self.pairs += other.pairs;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.silent += other.silent;
    }
}

/// Two cards on which programs run, one after the other.
#[derive(Debug)]
pub struct Cards {
    bench: Bench,
    /// Contexts of callbacks that are over, and how often each was called.
    ended: Vec<(&'static Slot, usize)>,
    /// The link loses, repeats, reorders and corrupts.
    is_lossy: bool,
}

impl Cards {
    /// Runs a program, and returns what became of its requests.
    ///
    /// # Panics
    /// If the model finds something that is not as it should be.
    pub fn run(&mut self, program: &Program) -> Tally {
        let (before, statistics) = (self.holdings(), self.statistics());
        let start = self.bench.world.clock();
        let mut run = Run::new(&mut self.bench);
        for op in &program.ops {
            run.step(*op);
        }
        if program.waits {
            run.wait();
        }
        let (tally, slots) = run.end(program.end);
        self.ended.extend(slots.into_iter().map(|slot| (slot, slot.count())));
        assert_eq!(self.holdings(), before, "mappings and objects of both cards");
        for side in &self.bench.sides {
            let anomalies = side.host().anomalies();
            assert_eq!((anomalies.stray_completions(), anomalies.lost_objects()), (0, 0), "stray completions, lost objects");
        }
        self.check_statistics(statistics, tally.pairs);
        Tally { programs: 1, steps: program.ops.len() as u64, clocks: self.bench.world.clock() - start, ..tally }
    }

    fn statistics(&self) -> [NDIS_NDK_PERFORMANCE_COUNTERS; 2] {
        [0, 1].map(|side| self.bench.statistics(side))
    }

    /// Checks what was counted since `before`: one connection made for each of `pairs` and none left, and what one card sent the other one took, unless
    /// the link or a full buffer had a say in it.
    fn check_statistics(&self, before: [NDIS_NDK_PERFORMANCE_COUNTERS; 2], pairs: u64) {
        let after = self.statistics();
        let since = |of: fn(&NDIS_NDK_PERFORMANCE_COUNTERS) -> u64| [0, 1].map(|side| of(&after[side]) - of(&before[side]));
        assert_eq!([since(|of| of.Connect), since(|of| of.Accept)], [[pairs, 0], [0, pairs]], "connections made");
        assert!(since(|of| of.ConnectionError).iter().all(|broken| *broken <= pairs), "connections broken");
        assert_eq!([since(|of| of.ConnectFailure), since(|of| of.CQError), after.map(|of| of.ActiveConnection)], [[0; 2]; 3]);
        // Over any link: the card counts the same frames in 32 bits too.
        for (side, after) in self.bench.sides.iter().zip(&after) {
            let [taken, sent] = [Counter::RxAccepted, Counter::TxPackets].map(|counter| side.host().read_counter(counter));
            assert_eq!([after.RDMAInFrames as u32, after.RDMAOutFrames as u32], [taken, sent], "frames that one card took and sent");
        }
        if self.is_lossy || self.bench.sides.iter().any(|side| side.host().read_counter(Counter::RxOverflow) != 0) {
            return;
        }
        let mut taken = [since(|of| of.RDMAInFrames), since(|of| of.RDMAInOctets)];
        taken.iter_mut().for_each(|sides| sides.reverse());
        assert_eq!(
            [since(|of| of.RDMAOutFrames), since(|of| of.RDMAOutOctets)],
            taken,
            "frames and octets that one card sent and the other one took"
        );
    }

    /// Returns how much memory each card reaches, in mappings, and what objects it has.
    fn holdings(&self) -> [(usize, ObjectCounts); 2] {
        [0, 1].map(|side| (self.bench.sides[side].card.mappings(), self.bench.sides[side].host().objects()))
    }

    /// Checks that every QP of one card can be created: no program has kept a number.
    ///
    /// # Panics
    /// If there is one QP less, or more.
    pub fn check_numbers(&self, side: usize) {
        let bench = &self.bench;
        let (pd, (cq, _)) = (bench.pd(side), bench.cq(side, 16));
        let size = QpSize { receives: 1, initiators: 1, ..QpSize::default() };
        let qps: Vec<_> = (limits::FIRST_QPN..limits::QPS as u32).map(|_| bench.qp(pd, cq, cq, size)).collect();
        assert_eq!(bench.try_qp(pd, cq, cq, size, bench.slot()), INSUFFICIENT_RESOURCES, "one QP more than there are");
        // SAFETY: the QPs are live, and not used any more.
        let close = |qp: &*mut NDK_QP| bench.close_object(unsafe { (*(**qp).Dispatch).NdkCloseQp }, qp.cast());
        // A few at a time: the last one's close would take longer than a wait lasts.
        for some in qps.chunks(64) {
            let slots: Vec<_> = some.iter().map(close).collect();
            slots.into_iter().for_each(|slot| bench.closed(slot));
        }
        close!(bench, pd => NdkClosePd, cq => NdkCloseCq);
    }

    /// Closes both adapters, after a time in which nothing may be called any more.
    ///
    /// # Panics
    /// As [`Cards::run`].
    pub fn close(self) {
        (0..LONG_SILENCE / STEP).for_each(|_| self.bench.step());
        for (slot, count) in &self.ended {
            assert_eq!(slot.count(), *count, "calls of what is over: {:x?}", slot.calls());
        }
        self.bench.close();
    }
}

/// A request that was accepted.
#[derive(Clone, Debug)]
struct Posted {
    request: u64,
    is_silent: bool,
    /// It has a wrong token, so it can't succeed.
    is_spoiled: bool,
    /// Its place in the source.
    source: Range<usize>,
    /// What its queue may write over in the sink: the place of its first write there.
    room: Range<usize>,
    /// Its first byte in the sink.
    sink: usize,
    bytes: Vec<u8>,
    status: Option<NTSTATUS>,
}

impl Posted {
    /// Tells whether it has succeeded, once everything is over: a silent request without an entry has. One that failed may have come through too, as a
    /// whole or in part.
    fn is_done(&self) -> bool {
        self.status.is_none_or(|status| status == SUCCESS)
    }
}

/// A queue of a QP, as the model knows it.
#[derive(Debug, Default)]
struct Queue {
    posted: Vec<Posted>,
    /// Requests whose entries, if they make any, are there.
    passed: usize,
    /// Newest requests that the consumer has deferred, and that the card may therefore not know of.
    deferred: usize,
}

impl Queue {
    /// Takes an entry: it is of a request that is outstanding, and of none but silent ones has an entry been left out before it. Returns the
    /// requests that are over with it.
    fn enter(&mut self, entry: &Entry) -> &[Posted] {
        let found = self.posted[self.passed..].iter().position(|posted| posted.request == entry.request);
        let Some(distance) = found else { panic!("an entry of no request that is outstanding: {entry:x?}, {} passed", self.passed) };
        let (index, has_failed) = (self.passed + distance, self.has_failed());
        for posted in &self.posted[self.passed..index] {
            assert!(posted.is_silent, "the entry of request {} is left out", posted.request);
            assert!(!posted.is_spoiled, "request {} has a wrong token, and no entry", posted.request);
            assert!(!has_failed, "silent request {} behind one that failed has no entry", posted.request);
        }
        let posted = &mut self.posted[index];
        if entry.status == SUCCESS {
            assert!(!posted.is_silent, "silent request {} has succeeded aloud", entry.request);
            assert!(!posted.is_spoiled, "request {} has succeeded with a wrong token", entry.request);
            assert_eq!(entry.code, 0, "the code of a success");
        }
        assert!(!has_failed || entry.status == CANCELLED, "request {} behind one that failed: {:#x}", entry.request, entry.status);
        posted.status = Some(entry.status);
        let over = self.passed..index + 1;
        self.passed = over.end;
        &self.posted[over]
    }

    /// Checks that everything is over.
    fn check(&self) {
        for posted in &self.posted[self.passed..] {
            assert!(posted.is_silent && !posted.is_spoiled && !self.has_failed(), "request {} has no entry", posted.request);
        }
    }

    fn has_failed(&self) -> bool {
        self.posted[..self.passed].iter().any(|posted| posted.status.is_some_and(|status| status != SUCCESS))
    }

    /// Tells whether every request that must make an entry has made it.
    fn is_quiet(&self) -> bool {
        self.posted[self.passed..].iter().all(|posted| posted.is_silent)
    }

    /// Tells whether all requests whose doorbell was rung have made the entries that they must make.
    fn is_done(&self) -> bool {
        self.posted[self.passed..].iter().rev().skip(self.deferred).all(|posted| posted.is_silent)
    }

    /// Requests that hold a slot, at most: silent ones may have left theirs.
    fn held_at_most(&self) -> usize {
        self.posted.len() - self.passed
    }

    /// Requests that hold a slot, at least: the oldest that has to make an entry, and all behind it.
    fn held_at_least(&self) -> usize {
        let held = &self.posted[self.passed..];
        held.len() - held.iter().position(|posted| !posted.is_silent).unwrap_or(held.len())
    }
}

/// Two QPs.
struct Pair {
    connected: Connected,
    /// Where initiator requests and receives complete, on both sides.
    cqs: [usize; 2],
    depth: usize,
    inline_bytes: usize,
    initiators: [Queue; 2],
    receives: [Queue; 2],
    /// Nothing has been done to it that ends it.
    is_whole: bool,
    /// A request has a wrong token, or one that is about to be.
    has_fault: bool,
    /// This side has flushed its QP, or has disconnected.
    has_ended: [bool; 2],
    /// Closes of connectors that are under way.
    closing: [Option<&'static Slot>; 2],
    /// Closes of QPs that are.
    closing_qps: [Option<&'static Slot>; 2],
    disconnects: Vec<&'static Slot>,
}

impl Pair {
    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.initiators.iter().chain(&self.receives)
    }

    /// The queues of QPs that are not closed: those of the others may have entries until their connectors are closed too.
    fn open_queues(&self) -> impl Iterator<Item = &Queue> {
        let is_open = |side: &usize| self.closing_qps[*side].is_none();
        (0..2).filter(is_open).flat_map(|side| [&self.initiators[side], &self.receives[side]])
    }

    /// Checks what an entry says of the connection.
    fn check(&self, entry: &Entry) {
        if self.is_whole {
            assert_eq!(entry.status, SUCCESS, "a request has failed on a connection that nobody has ended: {entry:x?}");
        }
        let is_legal = match entry.status {
            SUCCESS | CANCELLED | IO_TIMEOUT => true,
            ACCESS_VIOLATION => self.has_fault,
            _ => false,
        };
        assert!(is_legal, "an entry for which there is no reason: {entry:x?}");
    }
}

/// Side and number of each CQ.
fn every_cq() -> impl Iterator<Item = (usize, usize)> {
    (0..2).flat_map(|side| (0..CQS).map(move |cq| (side, cq)))
}

struct Run<'a> {
    bench: &'a mut Bench,
    pds: [*mut NDK_PD; 2],
    cqs: [[(*mut NDK_CQ, &'static Slot); CQS]; 2],
    sources: [Region; 2],
    sinks: [Region; 2],
    /// What the sources hold.
    filled: [Vec<u8>; 2],
    /// First byte of source and sink that no request has.
    free: usize,
    pairs: Vec<Pair>,
    next_request: u64,
    refused: u64,
    arms: [[usize; CQS]; 2],
}

impl<'a> Run<'a> {
    fn new(bench: &'a mut Bench) -> Self {
        let pds = [0, 1].map(|side| bench.pd(side));
        // Room for everything that a program can have outstanding.
        let cqs = [0, 1].map(|side| [(); CQS].map(|()| bench.cq(side, 1024)));
        let sources = [0, 1].map(|side| bench.region(pds[side], SPACE, NDK_MR_FLAG_ALLOW_LOCAL_READ));
        let sinks = [0, 1].map(|side| bench.region(pds[side], SPACE, NDK_MR_FLAG_ALLOW_REMOTE_WRITE));
        let filled = [(); 2].map(|()| vec![CANARY; SPACE]);
        let arms = [[0; CQS]; 2];
        Self { bench, pds, cqs, sources, sinks, filled, free: GAP, pairs: Vec::new(), next_request: 0, refused: 0, arms }
    }

    fn step(&mut self, op: Op) {
        let count = self.pairs.len();
        match op {
            Op::Connect { depth, inline_bytes, cqs } if count < MOST_PAIRS => self.connect(depth, inline_bytes, cqs),
            Op::Connect { .. } => {}
            // A QP that is closed is not used any more.
            Op::Write { pair, side, .. } | Op::Receive { pair, side } | Op::Flush { pair, side }
                if self.pairs[pair % count].closing_qps[side].is_some() => {}
            Op::Write { pair, side, write } => self.write(pair % count, side, write),
            Op::Receive { pair, side } => self.receive(pair % count, side),
            Op::Flush { pair, side } => self.flush(pair % count, side),
            Op::Disconnect { pair, side } => self.disconnect(pair % count, side),
            Op::CloseConnector { pair, side } => self.close_connector(pair % count, side),
            Op::CloseQp { pair, side } => self.close_qp(pair % count, side),
            Op::Arm { side, cq, kind } => self.arm(side, cq, kind),
            Op::Moderate { side, cq, interval, count } => {
                assert_eq!(ndk!(self.cqs[side][cq].0, NdkControlCqInterruptModeration(interval, count)), SUCCESS);
            }
            Op::Poll { side, cq, most } => {
                self.poll(side, cq, most);
            }
            Op::Run { clocks } => {
                (0..clocks / STEP).for_each(|_| self.bench.step());
                self.bench.pass(clocks % STEP);
            }
        }
    }

    fn connect(&mut self, depth: u32, inline_bytes: u32, cqs: [usize; 2]) {
        let number = self.pairs.len() as u64;
        let qps = [0, 1].map(|side| {
            let context = number << 8 | side as u64;
            let initiator_sges = MOST_SGES as u32;
            let size = QpSize { context, receives: depth, initiators: depth, initiator_sges, inline_bytes, ..QpSize::default() };
            let [initiator_cq, receive_cq] = cqs.map(|cq| self.cqs[side][cq].0);
            self.bench.qp(self.pds[side], receive_cq, initiator_cq, size)
        });
        self.pairs.push(Pair {
            connected: self.bench.connect(qps),
            cqs,
            depth: depth as usize,
            inline_bytes: inline_bytes as usize,
            initiators: Default::default(),
            receives: Default::default(),
            is_whole: true,
            has_fault: false,
            has_ended: [false; 2],
            closing: [None; 2],
            closing_qps: [None; 2],
            disconnects: Vec::new(),
        });
    }

    fn write(&mut self, index: usize, side: usize, write: Write) {
        let Write { flags, len, sges, fault, shifts, over } = write;
        let [place, new] = shifts.map(|shift| self.free + shift..self.free + shift + len);
        if place.end.max(new.end) + GAP > SPACE {
            return;
        }
        self.free = place.end.max(new.end) + GAP;
        let earlier = self.pairs[index].initiators[side].posted.iter().rev().map(|posted| &posted.room).find(|room| room.len() >= len);
        let (room, to) = match (over, earlier) {
            (Some(into), Some(room)) => (room.clone(), room.start + into % (room.len() - len + 1)),
            _ => (new.clone(), new.start),
        };
        let request = self.next_request;
        self.next_request += 1;
        let bytes: Vec<u8> = (0..len).map(|at| (request as usize * 31 + at * 7) as u8 & 0x7F).collect();
        self.fill(side, place.start, &bytes);
        let (source, sink) = (&self.sources[side], &self.sinks[1 - side]);
        let spoiled = |token: u32, when: Fault| if fault == when { token ^ 0x40 } else { token };
        let parts = if len == 0 { sges } else { sges.max(1) };
        let sge = |part: usize| {
            let (start, end) = (len * part / parts, len * (part + 1) / parts);
            NDK_SGE { MemoryRegionToken: spoiled(source.token, Fault::Local), ..source.sge(place.start + start, (end - start) as u32) }
        };
        let sges: Vec<_> = (0..parts).map(sge).collect();
        let is_inline = flags & NDK_OP_FLAG_INLINE != 0;
        let pair = &mut self.pairs[index];
        let (qp, queue) = (pair.connected.qps[side], &mut pair.initiators[side]);
        let (is_full, may_be_full) = (queue.held_at_least() >= pair.depth, queue.held_at_most() >= pair.depth);
        let is_too_long = is_inline && len > pair.inline_bytes;
        let status = self.bench.write(qp, request, &sges, sink.va(to), spoiled(sink.token, Fault::Remote), flags);
        self.refused += u64::from(status != SUCCESS);
        match status {
            SUCCESS => {
                assert!(!is_full, "a queue of {} takes one request more", pair.depth);
                assert!(!is_too_long, "{len} bytes are inline, the queue was made for {}", pair.inline_bytes);
                assert!(!pair.has_ended[side], "a request is taken behind a flush or a disconnect");
                // A write of no bytes looks at no token, and inline data has no local one.
                let is_spoiled = len > 0 && (fault == Fault::Remote || (fault == Fault::Local && !is_inline));
                pair.is_whole &= !is_spoiled;
                pair.has_fault |= is_spoiled;
                let is_silent = flags & NDK_OP_FLAG_SILENT_SUCCESS != 0;
                queue.deferred = if flags & NDK_OP_FLAG_DEFER != 0 { queue.deferred + 1 } else { 0 };
                queue.posted.push(Posted { request, is_silent, is_spoiled, source: place.clone(), room, sink: to, bytes, status: None });
                if is_inline {
                    self.scribble(side, place);
                }
            }
            // What fails inline rings for what was deferred.
            NO_MORE_ENTRIES => {
                assert!(may_be_full, "a queue of {} that holds fewer is full", pair.depth);
                queue.deferred = 0;
            }
            BUFFER_OVERFLOW => {
                assert!(is_too_long, "{len} bytes are too long for {}", pair.inline_bytes);
                queue.deferred = 0;
            }
            CONNECTION_INVALID => assert!(!pair.is_whole, "a connection that nobody has ended is over"),
            other => panic!("a write gave {other:#x}"),
        }
    }

    /// Puts bytes into the source of a side.
    fn fill(&mut self, side: usize, start: usize, bytes: &[u8]) {
        self.sources[side].fill(start, bytes);
        self.filled[side][start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Spoils a place in the source of a side that nobody may read any more.
    fn scribble(&mut self, side: usize, place: Range<usize>) {
        self.fill(side, place.start, &vec![SCRIBBLE; place.len()]);
    }

    fn receive(&mut self, index: usize, side: usize) {
        let pair = &mut self.pairs[index];
        let queue = &mut pair.receives[side];
        let request = queue.posted.len() as u64;
        let is_full = queue.held_at_least() >= pair.depth;
        let status = ndk!(pair.connected.qps[side], NdkReceive(request as PVOID, std::ptr::null(), 0));
        self.refused += u64::from(status != SUCCESS);
        match status {
            SUCCESS => {
                assert!(!is_full, "a queue of {} takes one receive more", pair.depth);
                let (source, room, bytes) = (0..0, 0..0, Vec::new());
                queue.posted.push(Posted { request, is_silent: false, is_spoiled: false, source, room, sink: 0, bytes, status: None });
            }
            NO_MORE_ENTRIES => assert!(is_full, "a queue that is not full is full"),
            CONNECTION_INVALID => assert!(!pair.is_whole, "a connection that nobody has ended is over"),
            other => panic!("a receive gave {other:#x}"),
        }
    }

    fn flush(&mut self, index: usize, side: usize) {
        let pair = &mut self.pairs[index];
        pair.is_whole = false;
        pair.has_ended[side] = true;
        ndk!(pair.connected.qps[side], NdkFlush());
    }

    fn disconnect(&mut self, index: usize, side: usize) {
        let (pair, slot) = (&mut self.pairs[index], self.bench.slot());
        if pair.closing[side].is_some() {
            return;
        }
        match ndk!(pair.connected.connectors[side], NdkDisconnect(Some(on_done), slot.context())) {
            PENDING => {
                pair.disconnects.push(slot);
                pair.has_ended[side] = true;
            }
            CONNECTION_INVALID => assert!(!pair.is_whole, "a connection that nobody has ended is over"),
            other => panic!("a disconnect gave {other:#x}"),
        }
        pair.is_whole = false;
    }

    fn close_connector(&mut self, index: usize, side: usize) {
        let pair = &mut self.pairs[index];
        if pair.closing[side].is_none() {
            pair.is_whole = false;
            let connector = pair.connected.connectors[side];
            // SAFETY: the connector is live, and not used any more.
            let close = unsafe { (*(*connector).Dispatch).NdkCloseConnector };
            pair.closing[side] = Some(self.bench.close_object(close, connector.cast()));
        }
    }

    fn close_qp(&mut self, index: usize, side: usize) {
        let pair = &mut self.pairs[index];
        if pair.closing_qps[side].is_none() {
            pair.is_whole = false;
            let qp = pair.connected.qps[side];
            // SAFETY: the QP is live, and not used any more.
            let close = unsafe { (*(*qp).Dispatch).NdkCloseQp };
            pair.closing_qps[side] = Some(self.bench.close_object(close, qp.cast()));
        }
    }

    fn arm(&mut self, side: usize, cq: usize, kind: u32) {
        self.arms[side][cq] += 1;
        ndk!(self.cqs[side][cq].0, NdkArmCq(kind));
    }

    /// Takes entries and holds them against the model. Returns how many there were.
    fn poll(&mut self, side: usize, cq: usize, most: usize) -> usize {
        let entries = self.bench.take(self.cqs[side][cq].0, most);
        for entry in &entries {
            let (number, from) = ((entry.qp >> 8) as usize, (entry.qp & 0xFF) as usize);
            assert!(number < self.pairs.len() && from == side, "an entry of no QP of this side: {entry:x?}");
            let pair = &mut self.pairs[number];
            pair.check(entry);
            match entry.operation {
                1 | 64 if pair.cqs[usize::from(entry.operation == 1)] != cq => panic!("an entry on a CQ of another queue: {entry:x?}"),
                1 => {
                    assert_eq!(entry.status, CANCELLED, "a receive that no send takes: {entry:x?}");
                    pair.receives[side].enter(entry);
                }
                64 => {
                    let over: Vec<_> = pair.initiators[side].enter(entry).iter().map(|posted| posted.source.clone()).collect();
                    over.into_iter().for_each(|place| self.scribble(side, place));
                }
                other => panic!("an entry of kind {other}"),
            }
        }
        for pair in self.pairs.iter().filter(|pair| pair.is_whole) {
            assert_eq!(pair.connected.events.map(Slot::count), [0; 2], "a disconnect event of a connection that nobody has ended");
        }
        entries.len()
    }

    /// Takes all entries. Returns how many each CQ of each side had.
    fn poll_all(&mut self) -> [[usize; CQS]; 2] {
        let mut counts = [[0; CQS]; 2];
        for (side, cq) in every_cq() {
            loop {
                match self.poll(side, cq, 64) {
                    0 => break,
                    more => counts[side][cq] += more,
                }
            }
        }
        counts
    }

    /// Waits until everything is done that nothing stands in the way of.
    fn wait(&mut self) {
        for _ in 0..PATIENCE / STEP {
            self.poll_all();
            let mut whole = self.pairs.iter().filter(|pair| pair.is_whole).flat_map(|pair| &pair.initiators);
            if whole.all(Queue::is_done) {
                return;
            }
            self.bench.step();
        }
        panic!("requests of a connection that nobody has ended are not done after {PATIENCE} clocks");
    }

    /// Flushes all QPs behind an arm, and waits for the entries and the notifications.
    fn flush_all(&mut self) {
        self.poll_all();
        let told = |run: &Self| run.cqs.map(|cqs| cqs.map(|(_, slot)| slot.count()));
        let notified = told(self);
        for (side, cq) in every_cq() {
            assert_eq!(ndk!(self.cqs[side][cq].0, NdkControlCqInterruptModeration(0, 0)), SUCCESS);
            self.arm(side, cq, NDK_CQ_NOTIFY_ANY);
        }
        for (index, side) in (0..self.pairs.len()).flat_map(|index| [(index, 0), (index, 1)]) {
            if self.pairs[index].closing_qps[side].is_none() {
                self.flush(index, side);
            }
        }
        let mut entries = [[0; CQS]; 2];
        for _ in 0..FLUSH / STEP {
            let more = self.poll_all();
            every_cq().for_each(|(side, cq)| entries[side][cq] += more[side][cq]);
            let is_told = |(side, cq): (usize, usize)| entries[side][cq] == 0 || self.cqs[side][cq].1.count() > notified[side][cq];
            if every_cq().all(is_told) && self.pairs.iter().flat_map(Pair::open_queues).all(Queue::is_quiet) {
                return;
            }
            self.bench.step();
        }
        let told = told(self);
        panic!("{FLUSH} clocks behind a flush, with entries {entries:?} and notifications {notified:?} to {told:?}, something is missing");
    }

    /// Ends everything, checks what is left to check, and returns what became of the requests, and the contexts of all calls, which are over.
    fn end(mut self, end: End) -> (Tally, Vec<&'static Slot>) {
        if end == End::Flush {
            self.flush_all();
        }
        for pair in &mut self.pairs {
            pair.is_whole = false;
            // What is still under way may find its regions gone.
            pair.has_fault |= end != End::Flush;
        }
        if end != End::CloseQps {
            self.close_connectors();
        }
        let bench = &*self.bench;
        let start = |close, object: *mut std::ffi::c_void| bench.close_object(close, object);
        let mut slots = Vec::new();
        // SAFETY: all of these objects are live. Antecedents first: their closes are over when those of the QPs are.
        unsafe {
            for side in 0..2 {
                slots.push(start((*(*self.pds[side]).Dispatch).NdkClosePd, self.pds[side].cast()));
                for mr in [self.sources[side].mr, self.sinks[side].mr] {
                    slots.push(start((*(*mr).Dispatch).NdkCloseMr, mr.cast()));
                }
            }
            for pair in &self.pairs {
                let listener = pair.connected.listener;
                slots.push(start((*(*listener).Dispatch).NdkCloseListener, listener.cast()));
            }
        }
        (0..self.pairs.len()).for_each(|index| (0..2).for_each(|side| self.close_qp(index, side)));
        self.close_connectors();
        slots.extend(self.pairs.iter().flat_map(|pair| pair.closing_qps.into_iter().chain(pair.closing)).flatten());
        slots.iter().for_each(|slot| self.bench.closed(slot));
        self.poll_all();
        for (cq, _) in self.cqs.into_iter().flatten() {
            // SAFETY: the CQ is live.
            let close = unsafe { (*(*cq).Dispatch).NdkCloseCq };
            let slot = self.bench.close_object(close, cq.cast());
            self.bench.closed(slot);
            slots.push(slot);
        }
        slots.extend(self.cqs.into_iter().flatten().map(|(_, notified)| notified));
        slots.extend(self.pairs.iter().flat_map(|pair| pair.connected.events.into_iter().chain(pair.disconnects.iter().copied())));
        let calls: Vec<usize> = slots.iter().map(|slot| slot.count()).collect();
        (0..SILENCE / STEP).for_each(|_| self.bench.step());
        for (slot, count) in slots.iter().zip(calls) {
            assert_eq!(slot.count(), count, "calls when everything is closed: {:x?}", slot.calls());
        }
        self.check();
        let tally = self.tally();
        self.sources.into_iter().chain(self.sinks).for_each(|region| self.bench.give_back(region));
        (tally, slots)
    }

    fn close_connectors(&mut self) {
        (0..self.pairs.len()).for_each(|index| (0..2).for_each(|side| self.close_connector(index, side)));
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally { pairs: self.pairs.len() as u64, refused: self.refused, ..Tally::default() };
        for posted in self.pairs.iter().flat_map(Pair::queues).flat_map(|queue| &queue.posted) {
            tally.accepted += 1;
            *match posted.status {
                None => &mut tally.silent,
                Some(SUCCESS) => &mut tally.succeeded,
                Some(_) => &mut tally.failed,
            } += 1;
        }
        tally
    }

    fn check(&self) {
        for (side, cq) in every_cq() {
            let (calls, arms) = (self.cqs[side][cq].1.calls(), self.arms[side][cq]);
            assert!(calls.iter().all(|call| *call == Call::Notified(SUCCESS)), "{calls:x?}");
            assert!(calls.len() <= arms, "{} notifications of {arms} arms", calls.len());
        }
        // What is in the sinks, without the bytes that a write has explained.
        let mut found = self.sinks.each_ref().map(|sink| sink.read(0, SPACE).into_iter().map(Some).collect::<Vec<_>>());
        for pair in &self.pairs {
            pair.disconnects.iter().for_each(|slot| assert_eq!(slot.count(), 1, "a disconnect calls once"));
            pair.connected.events.iter().for_each(|slot| assert!(slot.count() <= 1, "one disconnect event at most"));
            pair.queues().for_each(Queue::check);
            for (side, queue) in pair.initiators.iter().enumerate() {
                // From the newest on: what is there is of a write behind which none has succeeded.
                for posted in queue.posted.iter().rev() {
                    for (found, new) in found[1 - side][posted.sink..].iter_mut().zip(&posted.bytes) {
                        match found {
                            Some(byte) if byte == new && !posted.is_spoiled => *found = None,
                            Some(byte) => {
                                assert!(!posted.is_done(), "request {} has left {byte:#x} where {new:#x} belongs", posted.request)
                            }
                            None => {}
                        }
                    }
                }
            }
        }
        for found in found {
            assert!(found.into_iter().flatten().all(|byte| byte == CANARY), "bytes where nobody has written");
        }
        for (source, filled) in self.sources.iter().zip(&self.filled) {
            assert!(source.read(0, SPACE) == *filled, "bytes of a source are changed");
        }
    }
}
