//! The requester, wired: doorbells, outstanding requests, completions.
//!
//! Acknowledgements come through a coalescing queue, so they never wait for one another, whatever
//! the speed of the completer: a queue pair is in it once, with its newest. A refused request puts
//! its queue pair there too, weakly: an acknowledgement that is queued already will find it.
//!
//! When `timers` finds that a queue pair waits too long, that takes the same way, weakly too: an acknowledgement that is queued
//! already, or comes before the completer looks, takes its place.
//!
//! A queue pair whose responder has refused a request of the peer comes in on `kill`. It dies here as
//! by a failure of its own, but for the event, which the responder has sent.

use rust_hdl::prelude::*;
use verbena_abi::limits;

use super::{Completer, FlushGate, Posted, Timers};
use crate::bus::*;
use crate::prim::{Coalesce, Fifo};

#[derive(LogicBlock)]
pub struct Requester {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub bell_in: StreamSink<SqBell>,
    pub bell: StreamSource<SqBell>,
    pub issue: StreamSink<Issue>,
    pub ack: StreamSink<AckIn>,
    pub kill: StreamSink<Qpn>,
    pub entered: Signal<In, Bits<16>>,
    pub finished: Signal<In, Bits<16>>,
    pub asked: Signal<In, Asked>,
    pub restart: StreamSource<Restart>,
    pub retired: Signal<Out, Retired>,
    pub cqe: StreamSource<CqeReq>,
    pub progress: StreamSource<Progress>,
    pub halt: StreamSource<Qpn>,
    pub fatal: StreamSource<EventReq>,
    /// A queue pair is to be flushed or to send again, or completions are on their way to the CQ writer.
    pub flush_pending: Signal<Out, Bit>,
    pub count_ack: Signal<Out, Bit>,
    pub count_nak: Signal<Out, Bit>,
    pub count_ghost: Signal<Out, Bit>,
    pub count_restart: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_unacked: Signal<Out, Bits<24>>,
    pub query_consumer: Signal<Out, Bits<16>>,
    pub query_dead: Signal<Out, Bit>,

    posted: Posted,
    completer: Completer,
    gate: FlushGate,
    timers: Timers,
    acks: Coalesce<AckIn, { limits::LOG_QPS }, { limits::LOG_QPS + 1 }>,
    flushes: Coalesce<Bit, { limits::LOG_QPS }, { limits::LOG_QPS + 1 }>,
    halt_posted: Fifo<Qpn, 1, 2>,
    halt_others: Fifo<Qpn, 1, 2>,
    both_take: Signal<Local, Bit>,
    has_died: Signal<Local, Bit>,
    dead_qpn: Signal<Local, Qpn>,
    issued: Signal<Local, Issue>,
    refused: Signal<Local, Bit>,
    arrived: Signal<Local, AckIn>,
    late: Signal<Local, AckIn>,
    look_again: Constant<Bits<8>>,
}

impl Default for Requester {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            bell_in: Default::default(),
            bell: Default::default(),
            issue: Default::default(),
            ack: Default::default(),
            kill: Default::default(),
            entered: Default::default(),
            finished: Default::default(),
            asked: Default::default(),
            restart: Default::default(),
            retired: Default::default(),
            cqe: Default::default(),
            progress: Default::default(),
            halt: Default::default(),
            fatal: Default::default(),
            flush_pending: Default::default(),
            count_ack: Default::default(),
            count_nak: Default::default(),
            count_ghost: Default::default(),
            count_restart: Default::default(),
            query_qpn: Default::default(),
            query_unacked: Default::default(),
            query_consumer: Default::default(),
            query_dead: Default::default(),
            posted: Default::default(),
            completer: Default::default(),
            gate: Default::default(),
            timers: Default::default(),
            acks: Default::default(),
            flushes: Default::default(),
            halt_posted: Default::default(),
            halt_others: Default::default(),
            both_take: Default::default(),
            has_died: Default::default(),
            dead_qpn: Default::default(),
            issued: Default::default(),
            refused: Default::default(),
            arrived: Default::default(),
            late: Default::default(),
            look_again: Constant::new(super::completer::LOOK_AGAIN.to_bits()),
        }
    }
}

impl Logic for Requester {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, posted, completer, gate, timers, acks, flushes, halt_posted, halt_others);
        self.posted.reset.next = self.reset.val();
        self.completer.reset.next = self.reset.val();
        self.gate.reset.next = self.reset.val();
        self.timers.reset.next = self.reset.val();
        self.acks.reset.next = self.reset.val();
        self.flushes.reset.next = self.reset.val();
        self.halt_posted.reset.next = self.reset.val();
        self.halt_others.reset.next = self.reset.val();
        self.posted.qp_write.next = self.qp_write.val();
        self.completer.qp_write.next = self.qp_write.val();
        self.timers.qp_write.next = self.qp_write.val();

        StreamSink::<SqBell>::link(&mut self.bell_in, &mut self.posted.bell_in);
        StreamSource::<SqBell>::link(&mut self.bell, &mut self.posted.bell);
        self.posted.look_qpn.next = self.completer.look_qpn.val();
        self.completer.producer.next = self.posted.producer.val();
        self.completer.is_dead.next = self.posted.is_dead.val();

        // A flush: through its queue, then the gate.
        self.flushes.put_valid.next = self.posted.flush.valid.val() & self.flushes.ready.val();
        self.flushes.put_weak.next = false;
        self.flushes.put_key.next = self.posted.flush.data.val();
        self.flushes.put_data.next = false;
        self.posted.flush.ready.next = self.flushes.ready.val();
        self.gate.put.valid.next = self.flushes.get_valid.val();
        self.gate.put.data.next = self.flushes.get_key.val();
        self.flushes.get_ready.next = self.gate.put.ready.val();
        self.gate.entered.next = self.entered.val();
        self.gate.finished.next = self.finished.val();
        StreamSource::<Qpn>::join(&mut self.gate.flush, &mut self.completer.flush);

        self.timers.asked.next = self.asked.val();
        self.timers.unacked.next = self.completer.unacked.val();

        // Issues go straight on; one that was refused takes the queue of acknowledgements for a clock. A queue pair that waits
        // too long comes when nothing else does: acknowledgements leave clocks free, since none is shorter than 1.7 of them.
        self.issued.next = self.issue.data.val();
        self.refused.next = self.issue.valid.val() & self.completer.issue.ready.val() & self.issued.val().status.any();
        self.completer.issue.data.next = self.issue.data.val();
        self.completer.issue.valid.next = self.issue.valid.val() & self.acks.ready.val();
        self.issue.ready.next = self.completer.issue.ready.val() & self.acks.ready.val();
        self.arrived.next = self.ack.data.val();
        self.ack.ready.next = self.acks.ready.val() & !self.refused.val();
        self.late.next = self.timers.expiry.data.val();
        self.timers.expiry.ready.next = self.acks.ready.val() & !self.refused.val() & !self.ack.valid.val();
        self.acks.put_valid.next = self.acks.ready.val() & (self.refused.val() | self.ack.valid.val() | self.timers.expiry.valid.val());
        self.acks.put_weak.next = self.refused.val() | !self.ack.valid.val();
        self.acks.put_key.next = self.late.val().qpn;
        self.acks.put_data.next = self.late.val();
        if self.ack.valid.val() {
            self.acks.put_key.next = self.arrived.val().qpn;
            self.acks.put_data.next = self.arrived.val();
        }
        if self.refused.val() {
            self.acks.put_key.next = self.issued.val().qpn;
            self.acks.put_data.next.qpn = self.issued.val().qpn;
            self.acks.put_data.next.syndrome = self.look_again.val();
        }
        self.completer.ack.valid.next = self.acks.get_valid.val();
        self.completer.ack.data.next = self.acks.get_data.val();
        self.acks.get_ready.next = self.completer.ack.ready.val();

        // A death is told here and to the transmitter.
        self.both_take.next = self.halt_posted.fill.ready.val() & self.halt_others.fill.ready.val();
        self.completer.halt.ready.next = self.both_take.val();
        self.kill.ready.next = self.both_take.val() & !self.completer.halt.valid.val();
        self.has_died.next = self.both_take.val() & (self.completer.halt.valid.val() | self.kill.valid.val());
        self.dead_qpn.next = self.kill.data.val();
        if self.completer.halt.valid.val() {
            self.dead_qpn.next = self.completer.halt.data.val();
        }
        self.halt_posted.fill.valid.next = self.has_died.val();
        self.halt_others.fill.valid.next = self.has_died.val();
        self.halt_posted.fill.data.next = self.dead_qpn.val();
        self.halt_others.fill.data.next = self.dead_qpn.val();
        StreamSource::<Qpn>::join(&mut self.halt_posted.drain, &mut self.posted.halt);
        StreamSource::<Qpn>::link(&mut self.halt, &mut self.halt_others.drain);

        StreamSource::<Restart>::link(&mut self.restart, &mut self.completer.restart);
        self.retired.next = self.completer.retired.val();
        StreamSource::<CqeReq>::link(&mut self.cqe, &mut self.completer.cqe);
        StreamSource::<Progress>::link(&mut self.progress, &mut self.completer.progress);
        StreamSource::<EventReq>::link(&mut self.fatal, &mut self.completer.fatal);
        self.flush_pending.next = self.posted.flush.valid.val()
            | self.flushes.get_valid.val()
            | self.gate.is_busy.val()
            | self.completer.is_flushing.val()
            | self.restart.valid.val()
            | self.cqe.valid.val();
        self.count_ack.next = self.completer.count_ack.val();
        self.count_nak.next = self.completer.count_nak.val();
        self.count_ghost.next = self.completer.count_ghost.val();
        self.count_restart.next = self.completer.count_restart.val();
        self.completer.query_qpn.next = self.query_qpn.val();
        self.query_unacked.next = self.completer.query_unacked.val();
        self.query_consumer.next = self.completer.query_consumer.val();
        self.query_dead.next = self.completer.query_dead.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use verbena_abi::queue::{CqeStatus, QpState};

    /// The block with what stands on its streams.
    struct Case {
        bench: Bench<Requester>,
        bell_in: Driver<SqBell>,
        bell: Monitor<SqBell>,
        issue: Driver<Issue>,
        ack: Driver<AckIn>,
        cqe: Monitor<CqeReq>,
        progress: Monitor<Progress>,
        halt: Monitor<Qpn>,
        fatal: Monitor<EventReq>,
        restart: Monitor<Restart>,
        ghosts: usize,
        /// The completion queue takes nothing.
        is_shut: bool,
    }

    impl Case {
        fn new(name: &str) -> Self {
            let none = Stalls::none;
            let mut case = Self {
                bench: Bench::new(name, Requester::default(), |uut| &mut uut.clock),
                bell_in: Driver::new([], none()),
                bell: Monitor::new(none()),
                issue: Driver::new([], none()),
                ack: Driver::new([], none()),
                cqe: Monitor::new(none()),
                progress: Monitor::new(none()),
                halt: Monitor::new(none()),
                fatal: Monitor::new(none()),
                restart: Monitor::new(none()),
                ghosts: 0,
                is_shut: false,
            };
            case.reset(|_| Stalls::none());
            case
        }

        fn reset(&mut self, stalls: impl Fn(u64) -> Stalls) {
            self.bench.uut.bell_in.valid.next = false;
            self.bench.uut.issue.valid.next = false;
            self.bench.uut.ack.valid.next = false;
            self.bench.uut.reset.next = true;
            self.bench.cycles(2);
            self.bench.uut.reset.next = false;
            self.bench.cycles((1 << limits::LOG_QPS) + 4);
            (self.bell_in, self.bell) = (Driver::new([], stalls(1)), Monitor::new(stalls(2)));
            (self.issue, self.ack) = (Driver::new([], stalls(3)), Driver::new([], stalls(4)));
            (self.cqe, self.progress) = (Monitor::new(stalls(5)), Monitor::new(stalls(6)));
            (self.halt, self.fatal) = (Monitor::new(stalls(7)), Monitor::new(stalls(8)));
            self.restart = Monitor::new(stalls(9));
            self.ghosts = 0;
            self.bench.uut.entered.next = 0u64.into();
            self.bench.uut.finished.next = 0u64.into();
        }

        fn clocks(&mut self, count: usize) {
            for _ in 0..count {
                self.bell_in.before(&mut self.bench.uut.bell_in);
                self.bell.before(&mut self.bench.uut.bell);
                self.issue.before(&mut self.bench.uut.issue);
                self.ack.before(&mut self.bench.uut.ack);
                self.cqe.before(&mut self.bench.uut.cqe);
                self.progress.before(&mut self.bench.uut.progress);
                self.halt.before(&mut self.bench.uut.halt);
                self.fatal.before(&mut self.bench.uut.fatal);
                self.restart.before(&mut self.bench.uut.restart);
                if self.is_shut {
                    self.bench.uut.cqe.ready.next = false;
                }
                self.bench.settle();
                let uut = &self.bench.uut;
                self.bell_in.after(&uut.bell_in);
                self.bell.after(&uut.bell);
                self.issue.after(&uut.issue);
                self.ack.after(&uut.ack);
                self.cqe.after(&uut.cqe);
                self.progress.after(&uut.progress);
                self.halt.after(&uut.halt);
                self.fatal.after(&uut.fatal);
                self.restart.after(&uut.restart);
                self.ghosts += usize::from(uut.count_ghost.val());
                self.bench.edge();
            }
        }

        fn command(&mut self, qpn: u64, clear: bool, start_tx: bool, state: QpState) {
            let context = QpContext {
                state: (state as u64).into(),
                sq_psn: (0xFF_FF00 + qpn).into(),
                send_cqn: (0x40 + qpn).into(),
                progress_address: (0x1000 * qpn).into(),
                ack_timeout: 1u64.into(),
                retry_count: 2u64.into(),
                ..Default::default()
            };
            self.bench.uut.qp_write.next = QpWrite { valid: true, qpn: qpn.into(), clear, start_tx, context, ..Default::default() };
            self.clocks(1);
            self.bench.uut.qp_write.next = QpWrite::default();
            self.clocks(10);
        }

        fn ring(&mut self, qpn: u64, index: u64) {
            self.bell_in.queue.push_back(SqBell { qpn: qpn.into(), index: index.into() });
        }

        /// Issues a request of one packet; a refused one has none.
        fn issue(&mut self, qpn: u64, index: u64, signaled: bool, status: u64) {
            let last_psn = 0xFF_FF00 + qpn + index - u64::from(status != 0);
            self.issue.queue.push_back(Issue {
                qpn: qpn.into(),
                index: index.into(),
                last_psn: (last_psn & 0xFF_FFFF).into(),
                signaled,
                status: status.into(),
                is_unasked: false,
            });
        }

        fn ack(&mut self, qpn: u64, index: u64, syndrome: u64) {
            let psn = (0xFF_FF00 + qpn + index) & 0xFF_FFFF;
            self.ack.queue.push_back(AckIn { qpn: qpn.into(), psn: psn.into(), syndrome: syndrome.into() });
        }

        /// Takes the completions so far as queue pair, index and status.
        fn completions(&mut self) -> Vec<(u64, u64, u64)> {
            self.cqe.got.drain(..).map(|cqe| (cqe.qpn.to_u64(), cqe.index.to_u64(), cqe.status.to_u64())).collect()
        }
    }

    #[test]
    fn a_queue_pair_without_an_acknowledgement_sends_again_and_fails_when_no_retry_is_left() {
        let mut case = Case::new("requester_late");
        case.command(5, true, false, QpState::Init);
        case.command(5, false, true, QpState::Rts);
        case.ring(5, 3);
        case.clocks(6);
        let ask = |case: &mut Case, psn: u64| {
            case.bench.uut.asked.next = Asked { valid: true, qpn: 5u64.into(), psn: (0xFF_FF05 + psn).into() };
            case.clocks(1);
            case.bench.uut.asked.next = Asked::default();
        };
        (0..2).for_each(|index| case.issue(5, index, true, 0));
        case.clocks(4);
        ask(&mut case, 2);
        // Longer than any timer of 2048 clocks takes, and shorter than two.
        let period = 4 * 2048;
        case.clocks(period);
        let restart = |index: u64| Restart {
            qpn: 5u64.into(),
            index: index.into(),
            psn: (0xFF_FF05 + index).into(),
            end_psn: (0xFF_FF06 + index).into(),
        };
        assert_eq!(case.restart.got.first(), Some(&restart(0)));
        assert!(case.completions().is_empty());
        // The first one is acknowledged, so the second has all its retries.
        case.ack(5, 0, 0x1F);
        case.clocks(20);
        assert_eq!(case.completions(), [(5, 0, 0)]);
        case.restart.got.clear();
        case.clocks(3 * period);
        assert_eq!(case.restart.got, [restart(1), restart(1)]);
        let gone = CqeStatus::RetryExceeded as u64;
        case.clocks(100);
        assert_eq!(case.completions(), [(5, 1, gone), (5, 2, FLUSHED)]);
        assert_eq!((case.halt.got.len(), case.fatal.got.len(), case.fatal.got[0].code.to_u64()), (1, 1, gone));
        assert_eq!(case.ghosts, 0);
        case.clocks(2 * period);
        assert_eq!(case.restart.got.len(), 2);
        case.bench.finish();
    }

    const FLUSHED: u64 = CqeStatus::Flushed as u64;

    #[test]
    fn a_nak_kills_and_everything_posted_is_flushed_when_the_transmitter_is_done_with_it() {
        let mut case = Case::new("requester");
        case.command(5, true, false, QpState::Init);
        case.command(5, false, true, QpState::Rts);
        case.ring(5, 6);
        case.clocks(6);
        assert_eq!(case.bell.got.len(), 1);
        case.issue(5, 0, true, 0);
        case.issue(5, 1, true, 0);
        case.issue(5, 2, false, 0);
        case.bench.uut.entered.next = 6u64.into();
        case.bench.uut.finished.next = 3u64.into();
        case.clocks(10);
        case.ack(5, 1, 0x62);
        case.clocks(100);
        // Dead and told so, but three requests are still under way in the transmitter.
        assert_eq!(case.completions(), [(5, 0, 0), (5, 1, CqeStatus::RemoteAccess as u64)]);
        assert_eq!((case.halt.got.len(), case.fatal.got.len()), (1, 1));
        // A doorbell of a dead queue pair rings nowhere and is flushed too.
        case.ring(5, 8);
        case.clocks(20);
        assert_eq!(case.bell.got.len(), 1);
        case.bench.uut.finished.next = 5u64.into();
        case.clocks(60);
        assert_eq!(case.completions(), []);
        case.bench.uut.finished.next = 6u64.into();
        case.clocks(100);
        let rest: Vec<_> = (2..8).map(|index| (5, index, FLUSHED)).collect();
        assert_eq!(case.completions(), rest);
        case.ring(5, 9);
        case.clocks(100);
        assert_eq!(case.completions(), [(5, 8, FLUSHED)]);
        // Reset and started again it works from the beginning, and a flush that is on its way is stale.
        case.ring(5, 10);
        case.clocks(20);
        case.command(5, true, false, QpState::Reset);
        case.command(5, false, true, QpState::Rts);
        case.ring(5, 1);
        case.clocks(3);
        case.issue(5, 0, false, 0);
        case.clocks(100);
        case.ack(5, 0, 0x1F);
        case.clocks(30);
        assert_eq!(case.completions(), []);
        assert_eq!(case.progress.got, [Progress { addr: 0x5000u64.into(), index: 1u64.into() }]);
        assert_eq!(case.bell.got.len(), 2);
        // To ERROR by command: what is posted is flushed, without an event.
        case.ring(5, 3);
        case.clocks(5);
        case.command(5, false, false, QpState::Error);
        case.clocks(100);
        assert_eq!(case.completions(), [(5, 1, FLUSHED), (5, 2, FLUSHED)]);
        assert_eq!(case.fatal.got.len(), 1);
        case.bench.finish();
    }

    #[test]
    fn a_queue_pair_whose_responder_has_refused_is_flushed_and_halted_without_an_event() {
        let mut case = Case::new("requester_kill");
        for qpn in [5, 6] {
            case.command(qpn, true, false, QpState::Init);
            case.command(qpn, false, true, QpState::Rts);
        }
        case.ring(5, 2);
        case.ring(6, 1);
        case.issue(5, 0, true, 0);
        case.issue(6, 0, true, 0);
        case.clocks(10);
        // A failure of another queue pair at about the same time loses neither.
        case.ack(6, 0, 0x62);
        let mut kill = Driver::new([Qpn::from(5)], Stalls::none());
        for _ in 0..150 {
            kill.before(&mut case.bench.uut.kill);
            case.bench.settle();
            kill.after(&case.bench.uut.kill);
            case.clocks(1);
        }
        assert!(kill.is_done());
        let mut found = case.completions();
        found.sort_unstable();
        assert_eq!(found, [(5, 0, FLUSHED), (5, 1, FLUSHED), (6, 0, CqeStatus::RemoteAccess as u64)]);
        let mut halted: Vec<_> = case.halt.got.iter().map(|qpn| qpn.to_u64()).collect();
        halted.sort_unstable();
        assert_eq!(halted, [5, 6]);
        assert_eq!(case.fatal.got.iter().map(|event| event.number.to_u64()).collect::<Vec<_>>(), [6]);
        // A late acknowledgement completes nothing, and a doorbell is flushed.
        case.ack(5, 1, 0x1F);
        case.ring(5, 3);
        case.clocks(100);
        assert_eq!(case.completions(), [(5, 2, FLUSHED)]);
        assert_eq!(case.bell.got.len(), 2);
        case.bench.finish();
    }

    #[test]
    fn acknowledgements_coalesce_and_a_refused_request_is_found_though_a_ghost_took_its_place() {
        let mut case = Case::new("requester_coalesce");
        for qpn in [6, 7] {
            case.command(qpn, true, false, QpState::Init);
            case.command(qpn, false, true, QpState::Rts);
        }
        // The completer is kept busy by a completion queue that takes nothing.
        (0..20).for_each(|index| case.issue(6, index, true, 0));
        (0..20).for_each(|index| case.issue(7, index, true, 0));
        case.clocks(60);
        case.is_shut = true;
        case.ack(6, 9, 0x1F);
        case.clocks(20);
        // None of these waits for the completer; the newest counts for all.
        (0..20).for_each(|index| case.ack(7, index, 0x1F));
        case.clocks(25);
        assert!(case.ack.is_done());
        case.is_shut = false;
        case.clocks(60);
        let expected: Vec<_> = (0..10).map(|index| (6, index, 0)).chain((0..20).map(|index| (7, index, 0))).collect();
        assert_eq!(case.completions(), expected);

        // Refused with nothing before it: found without an acknowledgement.
        case.issue(7, 20, false, 4);
        case.clocks(40);
        assert_eq!(case.completions(), [(7, 20, 4)]);
        assert_eq!(case.halt.got, [Qpn::from(7)]);

        // Refused while an acknowledgement of the last before it waits: that one finds it. A ghost then
        // takes the place of the wish to look, and does the same.
        for is_ghost in [false, true] {
            case.reset(|_| Stalls::none());
            for qpn in [6, 7] {
                case.command(qpn, true, false, QpState::Init);
                case.command(qpn, false, true, QpState::Rts);
            }
            case.ring(6, 8);
            case.ring(7, 3);
            (0..8).for_each(|index| case.issue(6, index, true, 0));
            (0..2).for_each(|index| case.issue(7, index, true, 0));
            case.clocks(20);
            if is_ghost {
                case.ack(7, 1, 0x1F);
                case.clocks(30);
            }
            case.is_shut = true;
            case.ack(6, 7, 0x1F);
            case.clocks(20);
            // One acknowledgement of another queue pair stands in the register behind the queue.
            case.ack(6, 3, 0x1F);
            case.clocks(6);
            if !is_ghost {
                case.ack(7, 1, 0x1F);
                case.clocks(6);
            }
            case.issue(7, 2, true, 2);
            case.clocks(6);
            if is_ghost {
                case.ack(7, 100, 0x1F);
                case.clocks(6);
            }
            case.is_shut = false;
            case.clocks(60);
            let completions: Vec<_> = case.completions().into_iter().filter(|cqe| cqe.0 == 7).collect();
            assert_eq!(completions, [(7, 0, 0), (7, 1, 0), (7, 2, 2)]);
            assert_eq!(case.ghosts, 1 + usize::from(is_ghost), "the old one of queue pair 6 is one");
            assert_eq!(case.halt.got, [Qpn::from(7)]);
        }
        case.bench.finish();
    }

    #[test]
    fn random_traffic_completes_every_request_once_and_in_order_also_after_a_reset() {
        let mut case = Case::new("requester_random");
        for seed in 1..4 {
            for is_cut_short in [true, false] {
                case.reset(|n| Stalls::new(20 * seed + n));
                let mut random = Stalls::new(seed);
                for qpn in 2..6 {
                    case.command(qpn, true, false, QpState::Init);
                    case.command(qpn, false, true, QpState::Rts);
                }
                let counts: Vec<u64> = (0..4).map(|_| 8 + random.random() % 8).collect();
                for index in 0..16 {
                    for qpn in 2..6 {
                        let count = counts[qpn as usize - 2];
                        if index < count {
                            case.ring(qpn, index + 1);
                            // The last of queue pair 5 is refused.
                            case.issue(qpn, index, true, if qpn == 5 && index == count - 1 { 4 } else { 0 });
                        }
                    }
                }
                // Acknowledgements of what is issued, some of them late or lost.
                let mut entered = 0;
                for _ in 0..if is_cut_short { 60 } else { 400 } {
                    case.clocks(3);
                    entered += 1;
                    case.bench.uut.entered.next = (entered + 2u64).into();
                    case.bench.uut.finished.next = entered.into();
                    let left = case.issue.queue.iter().filter(|issue| issue.status == 0u64).count();
                    if case.ack.is_done() && left < 40 {
                        let qpn = 2 + random.random() % 4;
                        let waiting = case.issue.queue.iter().filter(|issue| issue.qpn == qpn).count() as u64;
                        let issued = counts[qpn as usize - 2] - waiting;
                        if issued > 0 {
                            case.ack(qpn, random.random() % issued, 0x1F);
                        }
                    }
                }
                if is_cut_short {
                    continue;
                }
                case.bench.uut.finished.next = (entered + 2).into();
                for qpn in 2..6 {
                    case.ack(qpn, counts[qpn as usize - 2] - if qpn == 5 { 2 } else { 1 }, 0x1F);
                }
                case.ring(5, counts[3] + 3);
                case.clocks(300);
                let completions = case.completions();
                for qpn in 2..6 {
                    let count = counts[qpn as usize - 2];
                    let mine: Vec<_> = completions.iter().filter(|cqe| cqe.0 == qpn).map(|cqe| (cqe.1, cqe.2)).collect();
                    let expected: Vec<_> = if qpn == 5 {
                        (0..count - 1).map(|i| (i, 0)).chain([(count - 1, 4)]).chain((count..count + 3).map(|i| (i, FLUSHED))).collect()
                    } else {
                        (0..count).map(|i| (i, 0)).collect()
                    };
                    assert_eq!(mine, expected, "queue pair {qpn}");
                }
                assert_eq!(case.halt.got, [Qpn::from(5)]);
                assert_eq!(case.fatal.got.len(), 1);
            }
        }
        case.bench.finish();
    }

    #[test]
    fn doorbells_issues_and_acknowledgements_are_taken_every_clock_whatever_the_completer_does() {
        let mut case = Case::new("requester_rate");
        for qpn in 2..10 {
            case.command(qpn, true, false, QpState::Init);
            case.command(qpn, false, true, QpState::Rts);
        }
        // The completer stands still with a completion that nobody takes.
        case.issue(2, 0, true, 0);
        case.clocks(3);
        case.is_shut = true;
        case.ack(2, 0, 0x1F);
        case.clocks(20);
        assert!(case.bench.uut.cqe.valid.val());
        for index in 0..10 {
            for qpn in 3..9 {
                case.ring(qpn, index + 1);
                case.issue(qpn, index, true, 0);
            }
        }
        let count = case.issue.queue.len();
        for clock in 0..count {
            case.clocks(1);
            assert_eq!((case.bell_in.queue.len(), case.issue.queue.len()), (count - 1 - clock, count - 1 - clock));
        }
        case.clocks(1);
        assert_eq!(case.bell.got.len(), count, "a doorbell takes one clock");
        for index in 0..10 {
            (3..9).for_each(|qpn| case.ack(qpn, index, 0x1F));
        }
        for clock in 0..count {
            case.clocks(1);
            assert_eq!(case.ack.queue.len(), count - 1 - clock);
        }
        case.is_shut = false;
        case.clocks(150);
        let completions = case.completions();
        assert_eq!(completions.len(), 1 + count);
        for qpn in 3..9 {
            let mine = completions.iter().filter(|cqe| cqe.0 == qpn).map(|cqe| (cqe.1, cqe.2));
            assert!(mine.eq((0..10).map(|index| (index, 0))), "queue pair {qpn}");
        }
        // One acknowledgement of many requests: a completion every clock.
        case.ring(9, 40);
        (0..40).for_each(|index| case.issue(9, index, true, 0));
        case.clocks(60);
        case.ack(9, 39, 0x1F);
        let begin = case.bench.clock_count();
        while case.cqe.got.is_empty() {
            case.clocks(1);
            assert!(case.bench.clock_count() - begin < 20, "no completion comes");
        }
        for done in 2..=40 {
            case.clocks(1);
            assert_eq!(case.cqe.got.len(), done);
        }
        case.bench.finish();
    }

    #[test]
    fn a_refused_request_holds_acknowledgements_up_for_one_clock() {
        let mut case = Case::new("requester_refused");
        for qpn in 2..5 {
            case.command(qpn, true, false, QpState::Init);
            case.command(qpn, false, true, QpState::Rts);
        }
        (0..4).for_each(|index| case.issue(2, index, true, 0));
        case.clocks(5);
        // The refused one is the third of five that come with the acknowledgements.
        (4..6).for_each(|index| case.issue(2, index, true, 0));
        case.ring(2, 8);
        case.ring(3, 1);
        case.issue(3, 0, true, 4);
        (6..8).for_each(|index| case.issue(2, index, true, 0));
        (0..6).for_each(|index| case.ack(2, index.min(3), 0x1F));
        let mut left = vec![];
        for _ in 0..7 {
            case.clocks(1);
            left.push((case.issue.queue.len(), case.ack.queue.len()));
        }
        assert_eq!(left, [(4, 5), (3, 4), (2, 4), (1, 3), (0, 2), (0, 1), (0, 0)]);
        case.clocks(60);
        let mut completions = case.completions();
        completions.sort_unstable();
        assert_eq!(completions, [(2, 0, 0), (2, 1, 0), (2, 2, 0), (2, 3, 0), (3, 0, 4)]);
        case.bench.finish();
    }
}
