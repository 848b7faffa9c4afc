//! A queue of keys in which each key is queued once or not at all, with its newest value.
//!
//! | port | carries |
//! |---|---|
//! | `put_valid` | put `put_data` under `put_key`; never refused |
//! | `put_weak` | this put does nothing if its key is queued already |
//! | `get_*` | the oldest key with its value; `get_ready` takes it |
//! | `ready` | out: low while the marks are cleared after a reset; puts are lost until it is high |
//!
//! A put to a key that is queued overwrites the value and leaves the place in the queue; otherwise
//! the key joins at the end. Latency: one clock from a put to `get_valid` while nothing is queued or offered, five
//! if the offer becomes free in that clock. Throughput: a put every clock and a get every two, in any mix of keys. It can't overflow: there are as many
//! places as keys. After a reset the marks are cleared, which takes `1 << N` clocks.
//!
//! What is offered is a copy in a register, so that it holds still until it is taken. Its key counts
//! as no longer queued: a put of that key in the meantime, or in the clock of the move, queues it
//! again. Whether a key is queued is the difference of two marks, one turned over by puts and one
//! by gets, so that each memory has one writer. Keys and values are in block memory, so the oldest keys are read ahead:
//! one moves from the queue to `next`, from there to `head` where its value is read, and then to the offer.

use rust_hdl::prelude::*;

use super::{LutRam, Ram};

/// Queue of `1 << N` keys; `M` must be `N + 1`.
#[derive(LogicBlock)]
pub struct Coalesce<T: Synth, const N: usize, const M: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
    pub put_valid: Signal<In, Bit>,
    pub put_weak: Signal<In, Bit>,
    pub put_key: Signal<In, Bits<N>>,
    pub put_data: Signal<In, T>,
    pub get_valid: Signal<Out, Bit>,
    pub get_key: Signal<Out, Bits<N>>,
    pub get_data: Signal<Out, T>,
    pub get_ready: Signal<In, Bit>,

    keys: Ram<Bits<N>, N>,
    values: Ram<T, N>,
    put_marks: LutRam<Bit, N>,
    // Two copies with the same contents, since a put and a get look at different keys.
    got_marks: LutRam<Bit, N>,
    got_marks_of_put: LutRam<Bit, N>,
    write_index: DFF<Bits<M>>,
    read_index: DFF<Bits<M>>,
    cleared: DFF<Bits<M>>,
    is_reading: DFF<Bit>,
    has_next: DFF<Bit>,
    next_key: DFF<Bits<N>>,
    has_head: DFF<Bit>,
    head_key: DFF<Bits<N>>,
    has_value: DFF<Bit>,
    // A value that was put while the memory was read.
    was_put: DFF<Bit>,
    put_value: DFF<T>,
    offers: DFF<Bit>,
    offer_key: DFF<Bits<N>>,
    offer_data: DFF<T>,
    is_clear: Signal<Local, Bit>,
    fetch: Signal<Local, Bit>,
    is_idle: Signal<Local, Bit>,
    is_free: Signal<Local, Bit>,
    passes: Signal<Local, Bit>,
    put: Signal<Local, Bit>,
    take: Signal<Local, Bit>,
    is_queued: Signal<Local, Bit>,
    append: Signal<Local, Bit>,
    store: Signal<Local, Bit>,
    depth: Constant<Bits<M>>,
}

impl<T: Synth, const N: usize, const M: usize> Default for Coalesce<T, N, M> {
    fn default() -> Self {
        assert_eq!(M, N + 1, "the indices of a queue of 2^{N} keys have {} bits", N + 1);
        Self {
            clock: Default::default(),
            reset: Default::default(),
            ready: Default::default(),
            put_valid: Default::default(),
            put_weak: Default::default(),
            put_key: Default::default(),
            put_data: Default::default(),
            get_valid: Default::default(),
            get_key: Default::default(),
            get_data: Default::default(),
            get_ready: Default::default(),
            keys: Default::default(),
            values: Default::default(),
            put_marks: Default::default(),
            got_marks: Default::default(),
            got_marks_of_put: Default::default(),
            write_index: Default::default(),
            read_index: Default::default(),
            cleared: Default::default(),
            is_reading: Default::default(),
            has_next: Default::default(),
            next_key: Default::default(),
            has_head: Default::default(),
            head_key: Default::default(),
            has_value: Default::default(),
            was_put: Default::default(),
            put_value: Default::default(),
            offers: Default::default(),
            offer_key: Default::default(),
            offer_data: Default::default(),
            is_clear: Default::default(),
            fetch: Default::default(),
            is_idle: Default::default(),
            is_free: Default::default(),
            passes: Default::default(),
            put: Default::default(),
            take: Default::default(),
            is_queued: Default::default(),
            append: Default::default(),
            store: Default::default(),
            depth: Constant::new((1usize << N).to_bits()),
        }
    }
}

impl<T: Synth, const N: usize, const M: usize> Logic for Coalesce<T, N, M> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, write_index, read_index, cleared, is_reading, has_next, next_key, has_head, head_key, has_value);
        dff_setup!(self, clock, was_put, put_value, offers, offer_key, offer_data);
        clock!(self, clock, keys, values, put_marks, got_marks, got_marks_of_put);

        self.is_clear.next = self.cleared.q.val() == self.depth.val();
        self.ready.next = self.cleared.q.val() == self.depth.val();
        self.get_valid.next = self.offers.q.val();
        self.get_key.next = self.offer_key.q.val();
        self.get_data.next = self.offer_data.q.val();

        // Keys are read ahead, one every two clocks. The value of `head` is read again in each clock, since it may change.
        self.keys.read_address.next = bit_cast::<N, M>(self.read_index.q.val());
        self.values.read_address.next = self.head_key.q.val();
        self.take.next = self.has_head.q.val() & self.has_value.q.val() & (!self.offers.q.val() | self.get_ready.val());
        self.is_free.next = !self.has_head.q.val() | self.take.val();
        self.fetch.next = (self.write_index.q.val() != self.read_index.q.val())
            & !self.is_reading.q.val()
            & (!self.has_next.q.val() | self.is_free.val());
        self.is_idle.next = (self.write_index.q.val() == self.read_index.q.val())
            & !self.is_reading.q.val()
            & !self.has_next.q.val()
            & !self.has_head.q.val()
            & !self.offers.q.val();

        // A put of the key that moves away in this clock finds it no longer queued. One into an idle queue is offered at once.
        self.put.next = self.put_valid.val() & self.is_clear.val();
        self.passes.next = self.put.val() & self.is_idle.val();
        self.put_marks.read_address.next = self.put_key.val();
        self.got_marks_of_put.read_address.next = self.put_key.val();
        self.is_queued.next = (self.put_marks.read_data.val() ^ self.got_marks_of_put.read_data.val())
            & (!self.take.val() | (self.head_key.q.val() != self.put_key.val()));
        self.append.next = self.put.val() & !self.is_queued.val() & !self.is_idle.val();
        self.store.next = self.put.val() & (!self.is_queued.val() | !self.put_weak.val()) & !self.is_idle.val();
        self.was_put.d.next = self.store.val() & (self.put_key.val() == self.head_key.q.val());
        self.put_value.d.next = self.put_data.val();

        self.keys.write_enable.next = self.append.val();
        self.keys.write_address.next = bit_cast::<N, M>(self.write_index.q.val());
        self.keys.write_data.next = self.put_key.val();
        self.values.write_enable.next = self.store.val();
        self.values.write_address.next = self.put_key.val();
        self.values.write_data.next = self.put_data.val();
        self.put_marks.write_enable.next = self.append.val();
        self.put_marks.write_address.next = self.put_key.val();
        self.put_marks.write_data.next = !self.put_marks.read_data.val();
        self.got_marks.read_address.next = self.head_key.q.val();
        self.got_marks.write_enable.next = self.take.val();
        self.got_marks.write_address.next = self.head_key.q.val();
        self.got_marks.write_data.next = !self.got_marks.read_data.val();

        if self.offers.q.val() & self.get_ready.val() {
            self.offers.d.next = false;
        }
        if self.take.val() {
            self.offers.d.next = true;
            self.offer_key.d.next = self.head_key.q.val();
            self.offer_data.d.next = self.values.read_data.val();
            if self.was_put.q.val() {
                self.offer_data.d.next = self.put_value.q.val();
            }
        }
        if self.passes.val() {
            self.offers.d.next = true;
            self.offer_key.d.next = self.put_key.val();
            self.offer_data.d.next = self.put_data.val();
        }
        self.is_reading.d.next = self.fetch.val();
        if self.fetch.val() {
            self.read_index.d.next = self.read_index.q.val() + 1;
        }
        self.has_value.d.next = self.has_head.q.val() & !self.take.val();
        if self.is_free.val() {
            self.has_head.d.next = self.has_next.q.val() | self.is_reading.q.val();
            self.head_key.d.next = self.keys.read_data.val();
            self.has_next.d.next = self.has_next.q.val() & self.is_reading.q.val();
            if self.has_next.q.val() {
                self.head_key.d.next = self.next_key.q.val();
            }
        } else if self.is_reading.q.val() {
            self.has_next.d.next = true;
        }
        if self.is_reading.q.val() {
            self.next_key.d.next = self.keys.read_data.val();
        }
        if self.append.val() {
            self.write_index.d.next = self.write_index.q.val() + 1;
        }

        if !self.is_clear.val() {
            self.put_marks.write_enable.next = true;
            self.put_marks.write_address.next = bit_cast::<N, M>(self.cleared.q.val());
            self.put_marks.write_data.next = false;
            self.got_marks.write_enable.next = true;
            self.got_marks.write_address.next = bit_cast::<N, M>(self.cleared.q.val());
            self.got_marks.write_data.next = false;
            self.cleared.d.next = self.cleared.q.val() + 1;
        }
        self.got_marks_of_put.write_enable.next = self.got_marks.write_enable.val();
        self.got_marks_of_put.write_address.next = self.got_marks.write_address.val();
        self.got_marks_of_put.write_data.next = self.got_marks.write_data.val();

        if self.reset.val() {
            self.write_index.d.next = 0.into();
            self.read_index.d.next = 0.into();
            self.cleared.d.next = 0.into();
            self.is_reading.d.next = false;
            self.has_next.d.next = false;
            self.has_head.d.next = false;
            self.has_value.d.next = false;
            self.offers.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Stalls};
    use std::collections::VecDeque;

    type Uut = Coalesce<Bits<16>, 3, 4>;

    fn bench(name: &str) -> Bench<Uut> {
        let mut bench = Bench::new(name, Uut::default(), |uut| &mut uut.clock);
        while !bench.uut.ready.val() {
            bench.edge();
            assert!(bench.clock_count() < 20, "ready does not come");
        }
        bench
    }

    /// The queue in software, with the registers on the way to the offer.
    #[derive(Default)]
    struct Model {
        order: VecDeque<u64>,
        newest: [u64; 8],
        reading: Option<u64>,
        next: Option<u64>,
        head: Option<u64>,
        has_value: bool,
        offer: Option<(u64, u64)>,
    }

    impl Model {
        fn clock(&mut self, put: Option<(u64, u64, bool)>, takes: bool) {
            let read_ahead = [self.reading, self.next, self.head];
            let is_idle = self.order.is_empty() && read_ahead == [None; 3] && self.offer.is_none();
            let moves = self.has_value && (self.offer.is_none() || takes);
            if takes {
                self.offer = None;
            }
            self.has_value = self.head.is_some() && !moves;
            if moves {
                self.offer = self.head.take().map(|key| (key, self.newest[key as usize]));
            }
            let may_read = self.reading.is_none() && (self.next.is_none() || self.head.is_none());
            let arrived = self.reading.take();
            if self.head.is_none() {
                self.head = self.next.take().or(arrived);
                self.next = arrived.filter(|key| self.head != Some(*key));
            } else {
                self.next = self.next.or(arrived);
            }
            if may_read {
                self.reading = self.order.pop_front();
            }
            match put {
                Some((key, data, _)) if is_idle => self.offer = Some((key, data)),
                Some((key, data, weak)) => {
                    let is_queued = self.order.contains(&key) || [self.reading, self.next, self.head].contains(&Some(key));
                    if !is_queued {
                        self.order.push_back(key);
                    }
                    if !is_queued || !weak {
                        self.newest[key as usize] = data;
                    }
                }
                None => {}
            }
        }
    }

    fn run(bench: &mut Bench<Uut>, seed: u64, clocks: u64) {
        let mut puts = Stalls::new(seed);
        let mut gets = Stalls::new(seed + 1);
        let mut model = Model::default();
        let mut last_put = [None; 8];
        for clock in 0..clocks {
            let put = puts.go().then(|| (puts.random() % 8, clock % 65536, puts.random() % 4 == 0));
            let (key, data, weak) = put.unwrap_or_default();
            bench.uut.put_valid.next = put.is_some();
            bench.uut.put_key.next = key.into();
            bench.uut.put_data.next = data.into();
            bench.uut.put_weak.next = weak;
            bench.uut.get_ready.next = gets.go();
            bench.settle();
            let offered = bench.uut.get_valid.val().then(|| (bench.uut.get_key.val(), bench.uut.get_data.val()));
            assert_eq!(offered, model.offer.map(|(key, data)| (key.into(), data.into())), "clock {clock}, seed {seed}");
            let takes = bench.uut.get_valid.val() && bench.uut.get_ready.val();
            if let (true, Some((key, data))) = (takes, model.offer) {
                if last_put[key as usize] == Some(data) {
                    last_put[key as usize] = None;
                }
            }
            if let (Some((key, data, false)), _) = (put, ()) {
                last_put[key as usize] = Some(data);
            }
            model.clock(put, takes);
            bench.edge();
        }
        // Drained, the newest strong value of every key has come out.
        bench.uut.put_valid.next = false;
        bench.uut.get_ready.next = true;
        for _ in 0..24 {
            bench.settle();
            if let Some((key, data)) = model.offer {
                if last_put[key as usize] == Some(data) {
                    last_put[key as usize] = None;
                }
            }
            model.clock(None, bench.uut.get_valid.val());
            bench.edge();
        }
        assert!(!bench.uut.get_valid.val());
        assert_eq!(last_put, [None; 8]);
    }

    #[test]
    fn a_key_is_queued_once_and_its_newest_value_comes_out() {
        let mut bench = bench("coalesce");
        run(&mut bench, 11, 3000);
        bench.finish();
    }

    /// Puts every `gap` clocks and takes in each clock; returns what came out.
    fn rush(name: &str, gap: u64, key: fn(u64) -> u64) -> Vec<Bits<16>> {
        let mut bench = bench(name);
        bench.uut.get_ready.next = true;
        let mut got = vec![];
        for clock in 0..120u64 {
            bench.uut.put_valid.next = clock < 100 && clock % gap == 0;
            bench.uut.put_key.next = key(clock / gap).into();
            bench.uut.put_data.next = (clock / gap).into();
            bench.settle();
            if bench.uut.get_valid.val() {
                got.push(bench.uut.get_data.val());
            }
            bench.edge();
        }
        bench.finish();
        got
    }

    #[test]
    fn a_put_and_a_get_go_through_every_two_clocks() {
        assert_eq!(rush("coalesce_rate", 2, |number| number % 8), (0..50u64).map(Bits::from).collect::<Vec<_>>());
    }

    #[test]
    fn puts_in_every_clock_merge_and_the_last_of_each_key_comes_out() {
        for (name, key) in [("coalesce_all", (|number| number % 8) as fn(u64) -> u64), ("coalesce_one", |_| 5)] {
            let got = rush(name, 1, key);
            assert!((20..60).contains(&got.len()), "{} come out", got.len());
            let keys = (0..100).map(key).max().unwrap() + 1;
            for value in (100 - if keys == 6 { 1 } else { 8 })..100u64 {
                assert!(got.contains(&value.into()), "{value} is the last of its key");
            }
        }
    }

    #[test]
    fn the_first_put_is_offered_a_clock_later() {
        let mut bench = bench("coalesce_first");
        for key in [3u64, 3, 6] {
            bench.uut.put_valid.next = true;
            bench.uut.put_key.next = key.into();
            bench.uut.put_data.next = (100 + key).into();
            bench.uut.get_ready.next = false;
            bench.cycles(1);
            bench.uut.put_valid.next = false;
            bench.settle();
            assert_eq!(
                (bench.uut.get_valid.val(), bench.uut.get_key.val(), bench.uut.get_data.val()),
                (true, key.into(), (100 + key).into())
            );
            bench.uut.get_ready.next = true;
            bench.cycles(1);
        }
        // One that is put while another is offered, and taken in that clock, goes through the queue.
        bench.uut.put_valid.next = true;
        bench.cycles(1);
        bench.uut.put_key.next = 2u64.into();
        bench.settle();
        assert!(bench.uut.get_valid.val());
        bench.cycles(1);
        bench.uut.put_valid.next = false;
        let mut clocks = 1;
        bench.settle();
        while !bench.uut.get_valid.val() {
            bench.cycles(1);
            bench.settle();
            clocks += 1;
            assert!(clocks < 20, "it does not come");
        }
        assert_eq!((clocks, bench.uut.get_key.val()), (5, 2u64.into()));
        bench.finish();
    }

    #[test]
    fn all_keys_fit_and_a_reset_forgets_them() {
        let mut bench = bench("coalesce_full");
        bench.uut.put_valid.next = true;
        for round in 0..2u64 {
            for key in 0..8u64 {
                bench.uut.put_key.next = key.into();
                bench.uut.put_data.next = (10 * round + key).into();
                bench.edge();
            }
        }
        bench.uut.put_valid.next = false;
        bench.uut.reset.next = true;
        bench.edge();
        bench.uut.reset.next = false;
        bench.cycles(8);
        assert!(bench.uut.ready.val());
        assert!(!bench.uut.get_valid.val());
        run(&mut bench, 21, 300);
        bench.finish();
    }
}
