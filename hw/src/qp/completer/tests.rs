//! The table of outstanding requests against a model: acknowledgements, refusals, timeouts and flushes.

use std::collections::VecDeque;

use super::*;
use crate::testing::{Bench, Driver, Monitor, Stalls};
use queue::{CqeStatus, QpState};

const PROGRESS: u64 = 0x7000_0000;
/// Status of requests that are refused behind one that did not ask for an acknowledgement.
const UNASKED: u64 = CqeStatus::LocalOperation as u64;

/// A request in the table of the model.
#[derive(Clone, Copy)]
struct Request {
    last_psn: u64,
    signaled: bool,
    status: u64,
}

/// A queue pair of the model: what is issued and not done, and where it stands.
#[derive(Clone, Default)]
struct Model {
    waiting: VecDeque<Request>,
    index: u64,
    next_psn: u64,
    unacked: u64,
    is_dead: bool,
    is_prompted: bool,
}

/// Queue pairs of the model, and what is expected on the streams.
#[derive(Default)]
struct Expected {
    pairs: Vec<Model>,
    cqes: Vec<CqeReq>,
    progresses: Vec<Progress>,
    restarts: Vec<Restart>,
    /// So many of them because of the timer.
    timeouts: usize,
    /// Queue pair, index and PSN behind each request that is done; a flushed one has no PSN.
    retired: Vec<(u64, u64, Option<u64>)>,
    halts: Vec<Qpn>,
    fatals: Vec<EventReq>,
    acks: usize,
    naks: usize,
    ghosts: usize,
}

impl Expected {
    fn retire(&mut self, qpn: usize, last_psn: Option<u64>) {
        let pair = &mut self.pairs[qpn];
        pair.index += 1;
        self.retired.push((qpn as u64, pair.index % 0x1_0000, last_psn.map(|psn| (psn + 1) & 0xFF_FFFF)));
    }

    fn cqe(&mut self, qpn: usize, status: u64, syndrome: u64, last_psn: Option<u64>) {
        let pair = &mut self.pairs[qpn];
        self.cqes.push(CqeReq {
            cqn: (0x40 + qpn as u64).into(),
            qpn: (qpn as u64).into(),
            index: (pair.index % 0x1_0000).into(),
            status: status.into(),
            opcode: 1u64.into(),
            syndrome: syndrome.into(),
        });
        self.retire(qpn, last_psn);
    }

    fn die(&mut self, qpn: usize, status: u64) {
        self.pairs[qpn].is_dead = true;
        self.halts.push((qpn as u64).into());
        self.fatals.push(EventReq { number: (qpn as u64).into(), kind: (queue::EventKind::QpFatal as u64).into(), code: status.into() });
    }

    fn ack(&mut self, qpn: usize, psn: u64, syndrome: u64) {
        let pair = &mut self.pairs[qpn];
        let ahead = |psn: u64, of: u64| psn.wrapping_sub(of) & 0xFF_FFFF;
        let is_late = [SEND_AGAIN, GIVE_UP].map(u64::from).contains(&syndrome);
        let is_look = syndrome == u64::from(LOOK_AGAIN) || is_late;
        let is_due = is_late && psn == pair.unacked;
        let outstanding = ahead(pair.next_psn, pair.unacked);
        if pair.is_dead {
            self.ghosts += usize::from(!is_look);
            return;
        }
        let mut refusal = None;
        match syndrome >> 5 {
            0 if (1..=outstanding).contains(&ahead(psn + 1, pair.unacked)) => {
                self.acks += 1;
                pair.unacked = (psn + 1) & 0xFF_FFFF;
            }
            1 | 3 if ahead(psn, pair.unacked) < outstanding => {
                self.naks += 1;
                pair.unacked = psn;
                refusal = match syndrome {
                    0x61 => Some(CqeStatus::RemoteInvalidRequest as u64),
                    0x62 => Some(CqeStatus::RemoteAccess as u64),
                    0x63 => Some(CqeStatus::RemoteOperation as u64),
                    _ => None,
                };
            }
            _ => self.ghosts += usize::from(!is_look),
        }
        let mut is_silent = false;
        while let Some(request) = self.pairs[qpn].waiting.front().copied() {
            if request.status != 0 {
                self.cqe(qpn, request.status, 0, Some(request.last_psn));
                return self.die(qpn, request.status);
            }
            let covered = (self.pairs[qpn].unacked.wrapping_sub(request.last_psn + 1) & 0xFF_FFFF) < 0x80_0000;
            if !covered {
                break;
            }
            self.pairs[qpn].waiting.pop_front();
            is_silent = !request.signaled;
            if request.signaled {
                self.cqe(qpn, 0, 0, Some(request.last_psn));
            } else {
                self.retire(qpn, Some(request.last_psn));
            }
        }
        let oldest = self.pairs[qpn].waiting.front().map(|request| request.last_psn);
        let is_sent_again = is_due && syndrome == u64::from(SEND_AGAIN);
        self.timeouts += usize::from(is_sent_again && refusal.is_none() && oldest.is_some());
        match (refusal, oldest) {
            (Some(status), Some(_)) => {
                self.cqe(qpn, status, syndrome, oldest);
                self.die(qpn, status);
            }
            (None, Some(_)) if is_due && syndrome == u64::from(GIVE_UP) => {
                let status = CqeStatus::RetryExceeded as u64;
                self.cqe(qpn, status, 0, oldest);
                self.die(qpn, status);
            }
            (None, Some(last_psn)) => {
                if self.prompts(qpn) | is_due {
                    self.restarts.push(Restart {
                        qpn: (qpn as u64).into(),
                        index: (self.pairs[qpn].index % 0x1_0000).into(),
                        psn: self.pairs[qpn].unacked.into(),
                        end_psn: ((last_psn + 1) & 0xFF_FFFF).into(),
                    });
                }
                self.progress(qpn, is_silent);
            }
            _ => self.progress(qpn, is_silent),
        }
    }

    fn progress(&mut self, qpn: usize, is_silent: bool) {
        let index = (self.pairs[qpn].index % 0x1_0000).into();
        self.progresses.extend(is_silent.then(|| Progress { addr: (PROGRESS + 4 * qpn as u64).into(), index }));
    }

    /// Tells whether what is before a refused request is to be sent again, once.
    fn prompts(&mut self, qpn: usize) -> bool {
        let pair = &mut self.pairs[qpn];
        let is_unasked = pair.waiting.back().is_some_and(|request| request.status == UNASKED);
        let is_first = is_unasked && !pair.is_prompted;
        pair.is_prompted |= is_unasked;
        is_first
    }

    fn flush(&mut self, qpn: usize, producer: u64, is_dead: bool) {
        if is_dead {
            let count = producer.wrapping_sub(self.pairs[qpn].index) % 0x1_0000;
            let count = if count <= limits::SQ_DEPTH as u64 { count } else { 0 };
            for _ in 0..count {
                self.cqe(qpn, CqeStatus::Flushed as u64, 0, None);
            }
            self.pairs[qpn].is_dead = true;
        }
    }
}

/// The block with its model, which takes one event at a time.
struct Case {
    bench: Bench<Completer>,
    cqe: Monitor<CqeReq>,
    progress: Monitor<Progress>,
    halt: Monitor<Qpn>,
    fatal: Monitor<EventReq>,
    restart: Monitor<Restart>,
    retired: Vec<Retired>,
    acks: usize,
    naks: usize,
    ghosts: usize,
    counted_restarts: usize,
    /// Nobody takes a restart.
    is_shut: bool,
    expected: Expected,
    issue_stalls: Stalls,
}

impl Case {
    fn new(name: &str) -> Self {
        let mut case = Self {
            bench: Bench::new(name, Completer::default(), |uut| &mut uut.clock),
            cqe: Monitor::new(Stalls::none()),
            progress: Monitor::new(Stalls::none()),
            halt: Monitor::new(Stalls::none()),
            fatal: Monitor::new(Stalls::none()),
            restart: Monitor::new(Stalls::none()),
            retired: vec![],
            acks: 0,
            naks: 0,
            ghosts: 0,
            counted_restarts: 0,
            is_shut: false,
            expected: Expected::default(),
            issue_stalls: Stalls::none(),
        };
        case.reset(|_| Stalls::none());
        case
    }

    fn reset(&mut self, stalls: impl Fn(u64) -> Stalls) {
        self.bench.uut.issue.valid.next = false;
        self.bench.uut.ack.valid.next = false;
        self.bench.uut.flush.valid.next = false;
        self.bench.uut.qp_write.next = QpWrite::default();
        self.bench.uut.reset.next = true;
        self.bench.cycles(2);
        self.bench.uut.reset.next = false;
        (self.cqe, self.progress) = (Monitor::new(stalls(1)), Monitor::new(stalls(2)));
        (self.halt, self.fatal) = (Monitor::new(stalls(3)), Monitor::new(stalls(4)));
        self.restart = Monitor::new(stalls(6));
        self.retired.clear();
        (self.acks, self.naks, self.ghosts, self.counted_restarts) = (0, 0, 0, 0);
        self.issue_stalls = stalls(5);
        self.expected = Expected { pairs: vec![Model::default(); 8], ..Default::default() };
    }

    fn clock(&mut self) {
        self.cqe.before(&mut self.bench.uut.cqe);
        self.progress.before(&mut self.bench.uut.progress);
        self.halt.before(&mut self.bench.uut.halt);
        self.fatal.before(&mut self.bench.uut.fatal);
        self.restart.before(&mut self.bench.uut.restart);
        if self.is_shut {
            self.bench.uut.restart.ready.next = false;
        }
        self.bench.settle();
        let uut = &self.bench.uut;
        self.cqe.after(&uut.cqe);
        self.progress.after(&uut.progress);
        self.halt.after(&uut.halt);
        self.fatal.after(&uut.fatal);
        self.restart.after(&uut.restart);
        let retired = uut.retired.val();
        self.retired.extend((retired.valid && retired.index.any()).then_some(retired));
        self.counted_restarts += usize::from(uut.count_restart.val());
        self.acks += usize::from(uut.count_ack.val());
        self.naks += usize::from(uut.count_nak.val());
        self.ghosts += usize::from(uut.count_ghost.val());
        self.bench.edge();
    }

    fn quiet(&mut self) {
        let start = self.bench.clock_count();
        while self.bench.uut.state.q.val() != State::Idle || self.bench.uut.changes.drain.valid.val() {
            self.clock();
            assert!(self.bench.clock_count() < start + 5000, "the completer hangs");
        }
        self.bench.settle();
    }

    fn command(&mut self, qpn: u64, clear: bool, start_tx: bool, psn: u64) {
        let context = QpContext {
            state: (QpState::Rts as u64).into(),
            sq_psn: psn.into(),
            send_cqn: (0x40 + qpn).into(),
            progress_address: (PROGRESS + 4 * qpn).into(),
            ..Default::default()
        };
        self.bench.uut.qp_write.next = QpWrite { valid: true, qpn: qpn.into(), clear, start_tx, context, ..Default::default() };
        self.clock();
        self.bench.uut.qp_write.next = QpWrite::default();
        self.clock();
        self.quiet();
        self.expected.pairs[qpn as usize] = Model { next_psn: psn, unacked: psn, ..Default::default() };
    }

    /// Issues requests of `packets` packets each; a refused one has none.
    fn issue(&mut self, qpn: usize, requests: &[(u64, bool, u64)]) {
        let mut issues = vec![];
        for (packets, signaled, status) in requests.iter().copied() {
            let pair = &mut self.expected.pairs[qpn];
            let packets = if status == 0 { packets } else { 0 };
            let last_psn = (pair.next_psn + packets + 0xFF_FFFF) & 0xFF_FFFF;
            pair.next_psn = (last_psn + 1) & 0xFF_FFFF;
            issues.push(Issue {
                qpn: (qpn as u64).into(),
                index: ((pair.index + pair.waiting.len() as u64) % 0x1_0000).into(),
                last_psn: last_psn.into(),
                signaled,
                status: status.into(),
                is_unasked: status == UNASKED,
            });
            pair.waiting.push_back(Request { last_psn, signaled, status });
        }
        let mut driver = Driver::new(issues, self.issue_stalls.clone());
        self.issue_stalls.random();
        while !driver.is_done() {
            driver.before(&mut self.bench.uut.issue);
            self.bench.settle();
            driver.after(&self.bench.uut.issue);
            self.clock();
        }
        self.bench.uut.issue.valid.next = false;
    }

    /// Gives an acknowledgement and lets it be worked off; returns the clocks from its taking until the next could be taken.
    fn ack(&mut self, qpn: usize, psn: u64, syndrome: u64) -> u64 {
        self.bench.uut.ack.data.next = AckIn { qpn: (qpn as u64).into(), psn: (psn & 0xFF_FFFF).into(), syndrome: syndrome.into() };
        self.bench.uut.ack.valid.next = true;
        self.quiet();
        assert!(self.bench.uut.ack.ready.val());
        self.clock();
        self.bench.uut.ack.valid.next = false;
        let start = self.bench.clock_count() - 1;
        self.quiet();
        self.expected.ack(qpn, psn & 0xFF_FFFF, syndrome);
        self.bench.clock_count() - start
    }

    fn look(&mut self, qpn: usize) {
        self.ack(qpn, 0, u64::from(LOOK_AGAIN));
    }

    /// Says that an acknowledgement of `psn` is late.
    fn is_late(&mut self, qpn: usize, psn: u64, syndrome: u8) {
        self.ack(qpn, psn, u64::from(syndrome));
    }

    fn flush(&mut self, qpn: usize, producer: u64, is_dead: bool) {
        self.bench.uut.flush.data.next = (qpn as u64).into();
        self.bench.uut.flush.valid.next = true;
        self.bench.uut.producer.next = producer.into();
        self.bench.uut.is_dead.next = is_dead;
        self.quiet();
        assert!(self.bench.uut.flush.ready.val());
        self.clock();
        self.bench.uut.flush.valid.next = false;
        assert_eq!(self.bench.uut.look_qpn.val(), qpn as u64);
        self.quiet();
        self.expected.flush(qpn, producer, is_dead);
    }

    /// Lets the streams run dry and compares everything.
    fn check(&mut self) {
        for _ in 0..400 {
            self.clock();
            let uut = &self.bench.uut;
            if !(uut.cqe.valid.val() | uut.progress.valid.val() | uut.halt.valid.val() | uut.fatal.valid.val() | uut.restart.valid.val()) {
                break;
            }
        }
        (0..2).for_each(|_| self.clock());
        assert_eq!(self.cqe.got, self.expected.cqes);
        assert_eq!(self.progress.got, self.expected.progresses);
        assert_eq!(self.halt.got, self.expected.halts);
        assert_eq!(self.fatal.got, self.expected.fatals);
        assert_eq!(self.restart.got, self.expected.restarts);
        assert_eq!(self.counted_restarts, self.expected.timeouts);
        assert_eq!(self.retired.len(), self.expected.retired.len());
        for (retired, (qpn, index, psn)) in self.retired.iter().zip(&self.expected.retired) {
            assert_eq!((retired.qpn.to_u64(), retired.index.to_u64()), (*qpn, *index));
            assert!(psn.is_none_or(|psn| retired.psn == psn), "{retired:?}, not {psn:?}");
        }
        assert_eq!((self.acks, self.naks, self.ghosts), (self.expected.acks, self.expected.naks, self.expected.ghosts));
        for (qpn, pair) in self.expected.pairs.iter().enumerate() {
            self.bench.uut.query_qpn.next = (qpn as u64).into();
            self.bench.cycles(1);
            assert_eq!(self.bench.uut.query_unacked.val(), pair.unacked);
            assert_eq!(self.bench.uut.query_consumer.val(), pair.index % 0x1_0000);
            assert_eq!(self.bench.uut.query_dead.val(), pair.is_dead);
        }
    }
}

const SILENT: (u64, bool, u64) = (1, false, 0);
const SIGNALED: (u64, bool, u64) = (1, true, 0);
const REFUSED: (u64, bool, u64) = (0, true, 4);

#[test]
fn acknowledgements_complete_what_they_cover_and_progress_is_told_when_the_last_was_silent() {
    let mut case = Case::new("completer");
    case.clock();
    assert!(!case.bench.uut.issue.ready.val(), "nothing is taken while the tables are cleared");
    case.quiet();
    // PSNs pass FFFFFF on the way.
    case.command(3, true, false, 0);
    case.command(3, false, true, 0xFF_FFFD);
    case.issue(3, &[SIGNALED, SILENT, (4, true, 0), (3, false, 0), SILENT, SIGNALED]);
    assert_eq!(case.ack(3, 0xFF_FFFD, 0x1F), 5, "one request and four clocks");
    case.ack(3, 0xFF_FFFD, 0x1F); // again: a ghost
    case.ack(3, 0xFF_FFFE, 0x1F); // silent: progress
    case.ack(3, 0x00_0000, 0x1F); // in the middle of the third
    case.ack(3, 0x00_0002, 0x00); // any AETH of kind 0 acknowledges; completes the third
    case.ack(3, 0x00_0008, 0x1F); // above what was sent: a ghost
    case.ack(3, 0x00_0007, 0x1F); // three at once, the last signaled: no progress
    case.ack(3, 0x00_0006, 0x1F); // behind: a ghost
    case.check();
    assert_eq!((case.cqe.got.len(), case.progress.got.len(), case.ghosts), (3, 1, 3));

    // Sequence NAK and RNR acknowledge what is before them, and refuse nothing.
    case.issue(3, &[SIGNALED, SIGNALED, SILENT, SIGNALED]);
    case.ack(3, 0x00_0009, 0x60);
    case.ack(3, 0x00_0009, 0x60); // nothing new, but not a ghost either
    case.ack(3, 0x00_000B, 0x2E);
    case.ack(3, 0x00_000C, 0x60); // never sent: a ghost
    case.ack(3, 0x00_0008, 0x62); // behind: a ghost that refuses nothing
    case.ack(3, 0x00_000B, 0x9F); // a reserved kind
    case.ack(3, 0x00_000B, 0x1F);
    case.check();
    assert_eq!((case.naks, case.ghosts), (3, 6));

    // One acknowledgement of a whole table, past its end: a request a clock.
    let all = [SIGNALED; 512];
    case.issue(3, &all);
    let psn = case.expected.pairs[3].next_psn + 0xFF_FFFF;
    assert_eq!(case.ack(3, psn, 0x1F), 512 + 4);
    case.check();
    case.issue(3, &[SILENT; 40]);
    let psn = case.expected.pairs[3].next_psn + 0xFF_FFFF;
    case.ack(3, psn, 0x1F);
    case.check();
    case.bench.finish();
}

#[test]
fn the_first_completion_comes_three_clocks_behind_its_acknowledgement() {
    let mut case = Case::new("completer_latency");
    case.quiet();
    case.command(2, false, true, 5);
    case.issue(2, &[SIGNALED]);
    case.clock();
    case.bench.uut.ack.data.next = AckIn { qpn: 2u64.into(), psn: 5u64.into(), syndrome: 0x1Fu64.into() };
    case.bench.uut.ack.valid.next = true;
    case.clock();
    case.bench.uut.ack.valid.next = false;
    let start = case.bench.clock_count() - 1;
    case.expected.ack(2, 5, 0x1F);
    while !case.bench.uut.cqe.valid.val() {
        case.clock();
    }
    assert_eq!(case.bench.clock_count() - start, 3);
    case.check();
    case.bench.finish();
}

#[test]
fn refusals_kill_at_their_place_and_what_is_posted_is_flushed() {
    let mut case = Case::new("completer_refusals");
    case.quiet();
    for (qpn, syndrome) in [(1, 0x61), (2, 0x62), (3, 0x63)] {
        case.command(qpn, false, true, 100);
        let qpn = qpn as usize;
        case.issue(qpn, &[SIGNALED, SILENT, (3, false, 0), SIGNALED]);
        // In the middle of the third: the first two are done, the third is at fault, though silent.
        case.ack(qpn, 103, syndrome);
        case.ack(qpn, 105, 0x1F); // dead: a ghost
        case.look(qpn); // not counted
                        // The fourth was issued, the fifth and sixth never were.
        case.flush(qpn, 6, true);
        case.flush(qpn, 6, true); // nothing left
        case.flush(qpn, 8, true); // posted behind the death
        case.flush(qpn, 7, true); // the late doorbell of another processor: nothing
        case.flush(qpn, 8, true); // rung for again
        case.flush(qpn, 9, true);
        case.check();
    }
    assert_eq!(case.fatal.got.iter().map(|event| event.code.to_u64()).collect::<Vec<_>>(), [9, 10, 11]);
    assert_eq!(case.ghosts, 3);
    // At the first request, and at the very first PSN.
    case.command(4, false, true, 0);
    case.issue(4, &[SIGNALED]);
    case.ack(4, 0, 0x62);
    // A queue pair that was reset meanwhile is alive: the late flush does nothing.
    case.command(4, true, false, 0);
    case.flush(4, 0, false);
    case.command(4, false, true, 9);
    case.flush(4, 5, false);
    case.issue(4, &[SILENT, SIGNALED]);
    case.ack(4, 9, 0x1F);
    case.ack(4, 10, 0x1F);
    case.check();
    // Killed by command: all that is posted is flushed.
    case.issue(4, &[SIGNALED, SIGNALED]);
    case.flush(4, 7, true);
    case.ack(4, 12, 0x1F);
    case.check();
    case.bench.finish();
}

#[test]
fn a_flush_goes_by_the_depth_of_a_queue_at_most() {
    let mut case = Case::new("completer_flush_depth");
    case.quiet();
    case.command(1, false, true, 0);
    let depth = limits::SQ_DEPTH as u64;
    // No queue holds so much: of the indices that a doorbell can bring, most can't be.
    for producer in [depth + 1, 0x8000, 0xFFFF] {
        case.flush(1, producer, true);
        case.check();
    }
    case.flush(1, depth, true);
    case.flush(1, depth - 1, true); // late
    case.flush(1, depth, true);
    case.check();
    case.bench.finish();
}

#[test]
fn a_refused_request_completes_when_all_before_it_are_done() {
    let mut case = Case::new("completer_refused");
    case.quiet();
    // Reached late: the acknowledgement of the last before it finds it in the table.
    case.command(1, false, true, 0);
    case.issue(1, &[SIGNALED, SILENT, REFUSED]);
    case.look(1);
    case.ack(1, 0, 0x1F);
    case.look(1);
    assert!(case.halt.got.is_empty());
    case.ack(1, 1, 0x1F);
    case.check();
    // Reached early: all before it are done when it is issued, so a wish to look again finds it.
    case.command(2, false, true, 0);
    case.issue(2, &[SILENT]);
    case.ack(2, 0, 0x1F);
    case.issue(2, &[(0, false, 2)]);
    case.look(2);
    case.check();
    // Its wish was overwritten by a ghost, which then does the same.
    case.command(3, false, true, 0);
    case.issue(3, &[REFUSED]);
    case.ack(3, 77, 0x62);
    case.check();
    // A sequence NAK that acknowledges all before it.
    case.command(4, false, true, 0);
    case.issue(4, &[(2, false, 0), (1, false, 0), REFUSED]);
    case.ack(4, 2, 0x60);
    case.ack(4, 2, 0x1F);
    case.check();
    assert_eq!(case.halt.got.len(), 4);
    // The wish to look for one queue pair while requests before it are under way tells progress of none.
    case.command(5, false, true, 0);
    case.issue(5, &[SILENT, REFUSED]);
    case.look(5);
    case.check();
    case.bench.finish();
}

#[test]
fn a_queue_pair_whose_time_is_up_restarts_at_its_oldest_packet_or_fails_there() {
    let mut case = Case::new("completer_late");
    case.quiet();
    case.command(3, false, true, 0xFF_FFFE);
    case.is_late(3, 0xFF_FFFE, SEND_AGAIN); // nothing is outstanding
    case.issue(3, &[SIGNALED, (4, false, 0), SILENT]);
    case.is_late(3, 0xFF_FFFE, SEND_AGAIN);
    case.ack(3, 0, 0x1F); // in the middle of the second
    case.is_late(3, 0xFF_FFFE, SEND_AGAIN); // something was acknowledged since the timer looked
    case.is_late(3, 0xFF_FFFE, GIVE_UP);
    case.is_late(3, 1, SEND_AGAIN);
    case.is_late(3, 1, SEND_AGAIN); // it was in vain
    case.check();
    let restart = |index: u64, psn: u64, end: u64| Restart { qpn: 3u64.into(), index: index.into(), psn: psn.into(), end_psn: end.into() };
    assert_eq!(case.restart.got, [restart(0, 0xFF_FFFE, 0xFF_FFFF), restart(1, 1, 3), restart(1, 1, 3)]);
    // What is sent again may be acknowledged late, all at once.
    case.ack(3, 3, 0x1F);
    case.issue(3, &[SILENT, SIGNALED]);
    case.is_late(3, 4, GIVE_UP);
    case.is_late(3, 4, SEND_AGAIN); // dead
    case.flush(3, 6, true);
    case.check();
    assert_eq!(case.fatal.got.iter().map(|event| event.code.to_u64()).collect::<Vec<_>>(), [CqeStatus::RetryExceeded as u64]);
    assert_eq!(case.ghosts, 0);
    // A request that was refused comes first, though time is up.
    case.command(4, false, true, 7);
    case.issue(4, &[REFUSED]);
    case.is_late(4, 7, SEND_AGAIN);
    case.check();
    case.bench.finish();
}

#[test]
fn what_is_before_a_refused_request_is_asked_for_once_if_nobody_has() {
    let mut case = Case::new("completer_unasked");
    case.quiet();
    case.command(3, false, true, 5);
    case.issue(3, &[SILENT, (2, false, 0), SILENT, (0, true, UNASKED)]);
    case.ack(3, 5, 0x1F); // the wish to look came too late for its place in the queue, and this one stands for it
    case.look(3);
    case.ack(3, 6, 0x1F);
    case.check();
    let restart = |index: u64, psn: u64, end: u64| Restart { qpn: 3u64.into(), index: index.into(), psn: psn.into(), end_psn: end.into() };
    assert_eq!(case.restart.got, [restart(1, 6, 8)]);
    // Lost again: that is the timer's.
    case.is_late(3, 7, SEND_AGAIN);
    case.ack(3, 8, 0x1F);
    case.check();
    assert_eq!((case.restart.got.len(), case.fatal.got.len()), (2, 1));
    // Nothing is before it.
    case.command(4, false, true, 5);
    case.issue(4, &[(0, true, UNASKED)]);
    case.look(4);
    case.check();
    assert_eq!((case.restart.got.len(), case.fatal.got.len()), (2, 2));
    case.bench.finish();
}

#[test]
fn restarts_that_find_no_room_are_left_to_the_timer() {
    let mut case = Case::new("completer_full");
    case.quiet();
    case.command(3, false, true, 5);
    case.issue(3, &[SIGNALED]);
    case.is_shut = true;
    for _ in 0..20 {
        case.bench.uut.ack.data.next = AckIn { qpn: 3u64.into(), psn: 5u64.into(), syndrome: SEND_AGAIN.to_bits() };
        case.bench.uut.ack.valid.next = true;
        case.quiet();
        case.clock();
        case.bench.uut.ack.valid.next = false;
        case.quiet();
    }
    case.is_shut = false;
    (0..40).for_each(|_| case.clock());
    assert_eq!((case.restart.got.len(), case.counted_restarts), (16, 16));
    case.bench.finish();
}

#[test]
fn random_traffic_of_several_queue_pairs_gives_what_a_model_gives_under_stalls_and_after_resets() {
    let mut case = Case::new("completer_random");
    for seed in 1..4 {
        let mut random = Stalls::new(seed);
        for is_cut_short in [true, false] {
            case.reset(|n| Stalls::new(10 * seed + n));
            case.quiet();
            for qpn in 0..4 {
                case.command(qpn, true, false, 0);
                case.command(qpn, false, true, (0xFF_FFF0 + random.random() % 32) & 0xFF_FFFF);
            }
            for _ in 0..if is_cut_short { 10 } else { 90 } {
                let qpn = random.random() as usize % 4;
                let pair = case.expected.pairs[qpn].clone();
                let outstanding = pair.next_psn.wrapping_sub(pair.unacked) & 0xFF_FFFF;
                let is_refused = pair.waiting.back().is_some_and(|request| request.status != 0);
                match random.random() % 12 {
                    0..=3 if !pair.is_dead && !is_refused => {
                        let refused = (random.random() % 12 == 0).then_some(REFUSED);
                        let requests: Vec<_> = (0..1 + random.random() % 6)
                            .map(|_| (1 + random.random() % 3, random.random() % 3 == 0, 0))
                            .chain(refused)
                            .collect();
                        case.issue(qpn, &requests);
                    }
                    0..=3 if pair.is_dead => {
                        let posted = pair.index + pair.waiting.len() as u64 + random.random() % 3;
                        case.flush(qpn, posted, true);
                        case.command(qpn as u64, true, false, 0);
                        case.command(qpn as u64, false, true, random.random() & 0xFF_FFFF);
                    }
                    4..=7 if outstanding > 0 => {
                        case.ack(qpn, pair.unacked + random.random() % outstanding, 0x1F);
                    }
                    8 => {
                        let psn = pair.unacked + random.random() % (outstanding + 2);
                        let syndrome = [0x60, 0x60, 0x21, 0x61, 0x62, 0x63][random.random() as usize % 6];
                        case.ack(qpn, psn, syndrome);
                    }
                    9 if random.random() % 2 == 0 => {
                        case.ack(qpn, pair.unacked + 0xFF_FFF0 + random.random() % 64, 0x1F);
                    }
                    10 => {
                        let psn = (pair.unacked + 0xFF_FFFF + random.random() % 3) & 0xFF_FFFF;
                        case.is_late(qpn, psn, if random.random() % 4 == 0 { GIVE_UP } else { SEND_AGAIN });
                    }
                    _ => case.look(qpn),
                }
            }
            if !is_cut_short {
                case.check();
            }
        }
    }
    case.bench.finish();
}
