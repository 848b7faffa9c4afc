//! The local ACK timeout: one walker over all queue pairs.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts: timeout and retry count |
//! | `asked` | in | the PSN behind the last packet of a queue pair that asks for an acknowledgement |
//! | `unacked` | in | the oldest unacknowledged PSN of a queue pair, and whether it is dead |
//! | `expiry` | source | queue pairs that wait too long, with that PSN: to send again, or to give up |
//!
//! The walker visits a queue pair every clock, and each once in [`QPS`] clocks: a *lap*, 8.2 us with 2048 of them. A queue pair waits
//! if the peer owes it an acknowledgement, that is while the unacknowledged PSN is before the one that was asked for. What was sent and
//! not asked for is nobody's debt: the last request posted always asks, and what is in front of a refused one is sent again and asks then. Nothing tells the walker about progress; it sees it,
//! because the unacknowledged PSN is another one than at the last visit. So the timer starts when the walker sees that the queue pair waits,
//! or that something was acknowledged, and costs no block a clock.
//!
//! **Period and error.** With exponent t a timer fires not before T = 1024 clocks times 2^t (4.096 us at 250 MHz) after the last progress, and not later
//! than T and two laps and two ticks of 1024 clocks behind it: below 4 T for every t with up to 2048 queue pairs, which is what the
//! specification allows (IBTA vol. 1, 9.7.6.1.3). Each firing without progress counts against the retry count; when it is used up,
//! `expiry` says to give up. The count stays while nothing is waited for, so between a restart and the first packet that asks again. With t = 0 the timer is off.
//!
//! A visit takes four clocks, pipelined: read; compare; shift; decide and write. If `expiry` is not taken the timer
//! fires at the next visit. After a reset one lap clears what was asked; nothing fires in it.
//!
//! [`QPS`]: verbena_abi::limits::QPS

use rust_hdl::prelude::*;
use verbena_abi::limits;

use super::completer::{GIVE_UP, SEND_AGAIN};
use crate::bus::{AckIn, Asked, QpContext, QpWrite, Qpn, StreamSource, Unacked};
use crate::prim::{Fifo, Ram};

/// log2 of the clocks of a tick, 4.096 us.
const LOG_TICK: usize = 10;
/// Bits of a time in ticks: the longest timeout is 2^31, and one bit more tells a time in the future.
const TIME: usize = 33;

/// What the context says.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Config {
    timeout: Bits<5>,
    retry_count: Bits<3>,
}

/// What the requester says.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Standing {
    unacked: Bits<24>,
    is_dead: Bit,
    is_new: Bit,
}

/// A timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Timer {
    is_running: Bit,
    /// Unacknowledged PSN at the last visit.
    seen: Bits<24>,
    /// Tick behind the one in which it was new, or the timer fired.
    since: Bits<TIME>,
    /// Firings without progress.
    used: Bits<3>,
}

#[derive(LogicBlock)]
pub struct Timers {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub asked: Signal<In, Asked>,
    pub unacked: Signal<In, Unacked>,
    pub expiry: StreamSource<AckIn>,

    configs: Ram<Config, { limits::LOG_QPS }>,
    debts: Ram<Bits<24>, { limits::LOG_QPS }>,
    standings: Ram<Standing, { limits::LOG_QPS }>,
    timers: Ram<Timer, { limits::LOG_QPS }>,
    expiries: Fifo<AckIn, 1, 2>,
    now: DFF<Bits<{ TIME + LOG_TICK }>>,
    qpn: DFF<Qpn>,
    is_clearing: DFF<Bit>,
    // Compare.
    compare_qpn: DFF<Qpn>,
    // Shift.
    shift_qpn: DFF<Qpn>,
    shift_config: DFF<Config>,
    shift_unacked: DFF<Bits<24>>,
    shift_timer: DFF<Timer>,
    shift_waits: DFF<Bit>,
    shift_moved: DFF<Bit>,
    shift_starts: DFF<Bit>,
    shift_new: DFF<Bit>,
    elapsed: DFF<Bits<TIME>>,
    // Decide.
    qpn_now: DFF<Qpn>,
    limits_now: DFF<Config>,
    standing: DFF<Bits<24>>,
    timer: DFF<Timer>,
    waits: DFF<Bit>,
    moved: DFF<Bit>,
    starts: DFF<Bit>,
    is_new: DFF<Bit>,
    periods: DFF<Bits<32>>,
    may_write: DFF<Bits<3>>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    debt: Signal<Local, Asked>,
    progress: Signal<Local, Unacked>,
    tick: Signal<Local, Bits<TIME>>,
    clears: Signal<Local, Bit>,
    is_clear: Signal<Local, Bit>,
    read_config: Signal<Local, Config>,
    read_standing: Signal<Local, Standing>,
    read_timer: Signal<Local, Timer>,
    distance: Signal<Local, Bits<24>>,
    config_now: Signal<Local, Config>,
    timer_now: Signal<Local, Timer>,
    is_last: Signal<Local, Bit>,
    fires: Signal<Local, Bit>,
    updated: Signal<Local, Timer>,
    stopped: Constant<Timer>,
    send_again: Constant<Bits<8>>,
    give_up: Constant<Bits<8>>,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            asked: Default::default(),
            unacked: Default::default(),
            expiry: Default::default(),
            configs: Default::default(),
            debts: Default::default(),
            standings: Default::default(),
            timers: Default::default(),
            expiries: Default::default(),
            now: Default::default(),
            qpn: Default::default(),
            is_clearing: Default::default(),
            compare_qpn: Default::default(),
            shift_qpn: Default::default(),
            shift_config: Default::default(),
            shift_unacked: Default::default(),
            shift_timer: Default::default(),
            shift_waits: Default::default(),
            shift_moved: Default::default(),
            shift_starts: Default::default(),
            shift_new: Default::default(),
            elapsed: Default::default(),
            qpn_now: Default::default(),
            limits_now: Default::default(),
            standing: Default::default(),
            timer: Default::default(),
            waits: Default::default(),
            moved: Default::default(),
            starts: Default::default(),
            is_new: Default::default(),
            periods: Default::default(),
            may_write: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            debt: Default::default(),
            progress: Default::default(),
            tick: Default::default(),
            clears: Default::default(),
            is_clear: Default::default(),
            read_config: Default::default(),
            read_standing: Default::default(),
            read_timer: Default::default(),
            distance: Default::default(),
            config_now: Default::default(),
            timer_now: Default::default(),
            is_last: Default::default(),
            fires: Default::default(),
            updated: Default::default(),
            stopped: Constant::new(Timer::default()),
            send_again: Constant::new(SEND_AGAIN.to_bits()),
            give_up: Constant::new(GIVE_UP.to_bits()),
        }
    }
}

impl Logic for Timers {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, now, qpn, is_clearing, compare_qpn, shift_qpn, shift_config, shift_unacked, shift_timer, shift_waits);
        dff_setup!(
            self,
            clock,
            shift_moved,
            shift_starts,
            shift_new,
            starts,
            is_new,
            elapsed,
            qpn_now,
            limits_now,
            standing,
            timer,
            waits,
            moved,
            periods,
            may_write
        );
        clock!(self, clock, configs, debts, standings, timers, expiries);
        self.expiries.reset.next = self.reset.val();
        StreamSource::<AckIn>::link(&mut self.expiry, &mut self.expiries.drain);
        self.now.d.next = self.now.q.val() + 1;
        self.tick.next = self.now.q.val().get_bits::<TIME>(10);

        // What others say.
        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.configs.write_enable.next = self.broadcast.val().valid;
        self.configs.write_address.next = self.broadcast.val().qpn;
        self.configs.write_data.next.timeout = self.attributes.val().ack_timeout;
        self.configs.write_data.next.retry_count = self.attributes.val().retry_count;
        self.debt.next = self.asked.val();
        self.clears.next = self.is_clearing.q.val() & !self.debt.val().valid;
        self.debts.write_enable.next = self.debt.val().valid | self.is_clearing.q.val();
        self.debts.write_address.next = self.qpn.q.val();
        self.debts.write_data.next = 0.into();
        if self.debt.val().valid {
            self.debts.write_address.next = self.debt.val().qpn;
            self.debts.write_data.next = self.debt.val().psn;
        }
        self.progress.next = self.unacked.val();
        self.standings.write_enable.next = self.progress.val().valid;
        self.standings.write_address.next = self.progress.val().qpn;
        self.standings.write_data.next.unacked = self.progress.val().psn;
        self.standings.write_data.next.is_dead = self.progress.val().is_dead;
        self.standings.write_data.next.is_new = self.progress.val().is_new;

        // Read.
        if !self.is_clearing.q.val() | self.clears.val() {
            self.qpn.d.next = self.qpn.q.val() + 1;
            if self.qpn.q.val().all() {
                self.is_clearing.d.next = false;
            }
        }
        self.configs.read_address.next = self.qpn.q.val();
        self.debts.read_address.next = self.qpn.q.val();
        self.standings.read_address.next = self.qpn.q.val();
        self.timers.read_address.next = self.qpn.q.val();
        self.compare_qpn.d.next = self.qpn.q.val();

        // Compare.
        self.read_config.next = self.configs.read_data.val();
        self.read_standing.next = self.standings.read_data.val();
        self.read_timer.next = self.timers.read_data.val();
        self.distance.next = self.debts.read_data.val() - self.read_standing.val().unacked;
        self.shift_qpn.d.next = self.compare_qpn.q.val();
        self.shift_config.d.next = self.read_config.val();
        self.shift_unacked.d.next = self.read_standing.val().unacked;
        self.shift_timer.d.next = self.read_timer.val();
        self.shift_waits.d.next = self.distance.val().any()
            & !self.distance.val().get_bit(23)
            & self.read_config.val().timeout.any()
            & !self.read_standing.val().is_dead;
        self.shift_moved.d.next = self.read_timer.val().seen != self.read_standing.val().unacked;
        self.shift_new.d.next = self.read_standing.val().is_new;
        self.shift_starts.d.next = !self.read_timer.val().is_running;
        self.elapsed.d.next = self.tick.val() - self.read_timer.val().since;

        // Shift.
        self.qpn_now.d.next = self.shift_qpn.q.val();
        self.limits_now.d.next = self.shift_config.q.val();
        self.standing.d.next = self.shift_unacked.q.val();
        self.timer.d.next = self.shift_timer.q.val();
        self.waits.d.next = self.shift_waits.q.val();
        self.moved.d.next = self.shift_moved.q.val();
        self.starts.d.next = self.shift_starts.q.val();
        self.is_new.d.next = self.shift_new.q.val();
        self.periods.d.next = 0.into();
        if !self.elapsed.q.val().get_bit(32) {
            self.periods.d.next = self.elapsed.q.val().get_bits::<32>(0) >> self.shift_config.q.val().timeout;
        }

        // Decide. What came through the pipeline while the memory was cleared does not count.
        self.config_now.next = self.limits_now.q.val();
        self.timer_now.next = self.timer.q.val();
        self.is_last.next = self.timer_now.val().used >= self.config_now.val().retry_count;
        self.expiries.fill.data.next.qpn = self.qpn_now.q.val();
        self.expiries.fill.data.next.psn = self.standing.q.val();
        self.expiries.fill.data.next.syndrome = self.send_again.val();
        if self.is_last.val() {
            self.expiries.fill.data.next.syndrome = self.give_up.val();
        }
        self.is_clear.next = !self.is_clearing.q.val();
        self.may_write.d.next = (self.may_write.q.val() << 1) | bit_cast::<3, 1>(self.is_clear.val().into());
        self.fires.next = self.waits.q.val()
            & !self.moved.q.val()
            & !self.starts.q.val()
            & self.periods.q.val().any()
            & self.may_write.q.val().get_bit(2);
        self.expiries.fill.valid.next = self.fires.val();
        self.updated.next = self.timer_now.val();
        self.updated.next.seen = self.standing.q.val();
        self.updated.next.is_running = self.waits.q.val();
        if self.moved.q.val() {
            self.updated.next.used = 0.into();
        } else if self.fires.val() & self.expiries.fill.ready.val() {
            if !self.is_last.val() {
                self.updated.next.used = self.timer_now.val().used + 1;
            }
        } else if self.is_new.q.val() {
            self.updated.next.used = 0.into();
        }
        if self.moved.q.val() | self.starts.q.val() | (self.fires.val() & self.expiries.fill.ready.val()) {
            self.updated.next.since = self.tick.val() + 1;
        }
        if !self.may_write.q.val().get_bit(2) {
            self.updated.next = self.stopped.val();
        }
        self.timers.write_enable.next = true;
        self.timers.write_address.next = self.qpn_now.q.val();
        self.timers.write_data.next = self.updated.val();

        if self.reset.val() {
            self.now.d.next = 0.into();
            self.qpn.d.next = 0.into();
            self.is_clearing.d.next = true;
            self.may_write.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Monitor, Stalls};

    const LAP: usize = 1 << limits::LOG_QPS;
    const TICK: usize = 1 << LOG_TICK;

    struct Case {
        bench: Bench<Timers>,
        expiry: Monitor<AckIn>,
        /// When each of them came, in clocks.
        times: Vec<usize>,
    }

    impl Case {
        fn new(name: &str) -> Self {
            let bench = Bench::new(name, Timers::default(), |uut| &mut uut.clock);
            let mut case = Self { bench, expiry: Monitor::new(Stalls::none()), times: vec![] };
            case.reset(Stalls::none());
            case
        }

        fn reset(&mut self, stalls: Stalls) {
            let uut = &mut self.bench.uut;
            (uut.qp_write.next, uut.asked.next, uut.unacked.next) = (QpWrite::default(), Asked::default(), Unacked::default());
            self.bench.uut.reset.next = true;
            self.bench.cycles(2);
            self.bench.uut.reset.next = false;
            self.expiry = Monitor::new(stalls);
            self.times.clear();
            self.clocks(LAP + 8);
        }

        fn now(&self) -> usize {
            self.bench.clock_count() as usize
        }

        fn clocks(&mut self, count: usize) {
            for _ in 0..count {
                self.expiry.before(&mut self.bench.uut.expiry);
                self.bench.settle();
                self.expiry.after(&self.bench.uut.expiry);
                let now = self.now();
                self.times.resize(self.expiry.got.len(), now);
                self.bench.edge();
            }
        }

        fn context(&mut self, qpn: u64, timeout: u64, retry_count: u64) {
            let context = QpContext { ack_timeout: timeout.into(), retry_count: retry_count.into(), ..Default::default() };
            self.bench.uut.qp_write.next = QpWrite { valid: true, qpn: qpn.into(), context, ..Default::default() };
            self.clocks(1);
            self.bench.uut.qp_write.next = QpWrite::default();
        }

        fn ask(&mut self, qpn: u64, psn: u64) {
            self.bench.uut.asked.next = Asked { valid: true, qpn: qpn.into(), psn: psn.into() };
            self.clocks(1);
            self.bench.uut.asked.next = Asked::default();
        }

        fn acknowledge(&mut self, qpn: u64, psn: u64, is_dead: bool) {
            self.bench.uut.unacked.next = Unacked { valid: true, qpn: qpn.into(), psn: psn.into(), is_dead, is_new: false };
            self.clocks(1);
            self.bench.uut.unacked.next = Unacked::default();
        }

        /// Takes what expired since the last call: queue pair, PSN, whether to give up.
        fn taken(&mut self) -> Vec<(u64, u64, bool)> {
            self.times.clear();
            self.expiry.got.drain(..).map(|late| (late.qpn.to_u64(), late.psn.to_u64(), late.syndrome == u64::from(GIVE_UP))).collect()
        }
    }

    #[test]
    fn a_timer_fires_once_a_period_within_its_error_and_gives_up_behind_the_last_retry() {
        let mut case = Case::new("timers");
        let last = LAP as u64 - 1;
        for (qpn, timeout, retries) in [(0, 1, 0), (last, 1, 7), (2, 2, 3), (1000, 3, 1), (5, 5, 2)] {
            case.reset(Stalls::none());
            case.context(qpn, timeout, retries);
            case.acknowledge(qpn, 0xFF_FFFF, false);
            case.clocks(700 * qpn as usize % 5_000);
            case.ask(qpn, 1);
            let (mut before, period) = (case.now(), TICK << timeout);
            for firing in 0..=retries {
                while case.times.is_empty() {
                    case.clocks(1);
                    assert!(case.now() < before + period + 2 * LAP + 2 * TICK, "exponent {timeout} is late");
                }
                let took = case.times[0] - before;
                assert!(took > period && took < 4 * period.max(1024), "{took} clocks with exponent {timeout}");
                assert_eq!(case.taken(), [(qpn, 0xFF_FFFF, firing == retries)]);
                // Measured from one firing to the next from now on.
                before += took;
            }
            // Nobody took it seriously: it says so again.
            case.clocks(period + 2 * LAP + 2 * TICK);
            assert_eq!(case.taken().first(), Some(&(qpn, 0xFF_FFFF, true)));
            case.acknowledge(qpn, 0xFF_FFFF, true);
            case.clocks(2 * period + 3 * LAP);
            assert_eq!(case.taken(), [], "a dead queue pair waits for nothing");
        }
        case.bench.finish();
    }

    #[test]
    fn progress_starts_the_timer_anew_and_gives_all_retries_back() {
        let mut case = Case::new("timers_progress");
        case.context(9, 2, 1);
        case.ask(9, 100);
        let period = 4 * TICK;
        // Never a whole period without progress.
        for psn in 0..8 {
            case.acknowledge(9, psn, false);
            case.clocks(period - 100);
        }
        assert_eq!(case.taken(), []);
        for psn in 8..12 {
            case.clocks(period + 2 * LAP + 2 * TICK);
            assert_eq!(case.taken().first(), Some(&(9, psn - 1, false)), "a retry is there again");
            case.acknowledge(9, psn, false);
        }
        // Everything that was asked for is there, and more.
        case.acknowledge(9, 100, false);
        case.clocks(3 * period + LAP);
        case.acknowledge(9, 120, false);
        case.clocks(3 * period + LAP);
        assert_eq!(case.taken(), []);
        // What is sent again asks anew, with an older PSN: nothing is waited for between.
        case.ask(9, 130);
        case.clocks(period + 2 * LAP + 2 * TICK);
        assert_eq!(case.taken(), [(9, 120, false)]);
        case.ask(9, 120);
        case.clocks(3 * period + LAP);
        assert_eq!(case.taken(), []);
        case.bench.finish();
    }

    #[test]
    fn the_count_of_retries_outlasts_the_time_between_a_restart_and_the_packet_that_asks_again() {
        let mut case = Case::new("timers_again");
        for (is_new, expected) in [(false, [false, false, true, true]), (true, [false, false, false, false])] {
            case.reset(Stalls::none());
            case.context(9, 1, 2);
            case.acknowledge(9, 100, false);
            case.ask(9, 110);
            for gives_up in expected {
                case.clocks(4 * 2048);
                assert_eq!(case.taken().first(), Some(&(9, 100, gives_up)));
                // The restart, and it takes the transmitter long to come to it.
                case.ask(9, 100);
                case.clocks(3 * LAP);
                assert_eq!(case.taken(), []);
                if is_new {
                    // Another queue pair of this number, which begins with the same PSN.
                    let unacked = Unacked { valid: true, qpn: 9u64.into(), psn: 100u64.into(), is_dead: false, is_new };
                    case.bench.uut.unacked.next = unacked;
                    case.clocks(LAP + 8);
                    case.acknowledge(9, 100, false);
                }
                case.ask(9, 105);
            }
        }
        case.bench.finish();
    }

    #[test]
    fn nothing_fires_with_a_timeout_of_0_or_a_long_one_and_a_reset_forgets_everything() {
        let mut case = Case::new("timers_off");
        for (qpn, timeout) in [(3, 0), (4, 31), (5, 8)] {
            case.context(qpn, timeout, 7);
            case.ask(qpn, 50);
        }
        case.clocks(20 * LAP);
        assert_eq!(case.taken(), []);
        // Still configured, but nothing is asked for any more: the completer clears its part itself.
        case.context(6, 1, 0);
        case.ask(6, 50);
        case.reset(Stalls::none());
        case.clocks(6 * LAP);
        assert_eq!(case.taken(), []);
        case.ask(6, 50);
        case.clocks(2 * TICK + 2 * LAP + 2 * TICK);
        assert_eq!(case.taken().first(), Some(&(6, 0, true)));
        case.bench.finish();
    }

    #[test]
    fn all_queue_pairs_fire_though_nobody_takes_it_for_long() {
        let mut case = Case::new("timers_all");
        case.reset(Stalls::new(5));
        for qpn in 0..64u64 {
            case.context(qpn * 31 % 2000, 3, 6);
            case.ask(qpn * 31 % 2000, 1);
        }
        let period = 8 * TICK;
        case.clocks(period + 3 * LAP + 2 * TICK);
        let mut fired: Vec<u64> = case.taken().into_iter().map(|(qpn, ..)| qpn).collect();
        fired.sort_unstable();
        let mut all: Vec<u64> = (0..64).map(|qpn| qpn * 31 % 2000).collect();
        all.sort_unstable();
        assert_eq!(fired, all, "each once");
        case.bench.finish();
    }
}
