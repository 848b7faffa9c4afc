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
//! the key joins at the end. Latency: three clocks from a put to `get_valid` of an empty queue.
//! Throughput: a put and a get every clock, in any mix of keys. It can't overflow: there are as many
//! places as keys. After a reset the marks are cleared, which takes `1 << N` clocks.
//!
//! What is offered is a copy in a register, so that it holds still until it is taken. Its key counts
//! as no longer queued: a put of that key in the meantime, or in the clock of the move, queues it
//! again. Whether a key is queued is the difference of two marks, one turned over by puts and one
//! by gets, so that each memory has one writer.

use rust_hdl::prelude::*;

use super::LutRam;

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

    keys: LutRam<Bits<N>, N>,
    values: LutRam<T, N>,
    put_marks: LutRam<Bit, N>,
    // Two copies with the same contents, since a put and a get look at different keys.
    got_marks: LutRam<Bit, N>,
    got_marks_of_put: LutRam<Bit, N>,
    write_index: DFF<Bits<M>>,
    read_index: DFF<Bits<M>>,
    cleared: DFF<Bits<M>>,
    has_head: DFF<Bit>,
    head_key: DFF<Bits<N>>,
    offers: DFF<Bit>,
    offer_key: DFF<Bits<N>>,
    offer_data: DFF<T>,
    is_clear: Signal<Local, Bit>,
    fetch: Signal<Local, Bit>,
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
            has_head: Default::default(),
            head_key: Default::default(),
            offers: Default::default(),
            offer_key: Default::default(),
            offer_data: Default::default(),
            is_clear: Default::default(),
            fetch: Default::default(),
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
        dff_setup!(self, clock, write_index, read_index, cleared, has_head, head_key, offers, offer_key, offer_data);
        clock!(self, clock, keys, values, put_marks, got_marks, got_marks_of_put);

        self.is_clear.next = self.cleared.q.val() == self.depth.val();
        self.ready.next = self.cleared.q.val() == self.depth.val();
        self.get_valid.next = self.offers.q.val();
        self.get_key.next = self.offer_key.q.val();
        self.get_data.next = self.offer_data.q.val();

        // The oldest key has a register of its own, still queued, and moves to the offer with its
        // value when that is free or becomes free.
        self.keys.read_address.next = bit_cast::<N, M>(self.read_index.q.val());
        self.values.read_address.next = self.head_key.q.val();
        self.take.next = self.has_head.q.val() & (!self.offers.q.val() | self.get_ready.val());
        self.fetch.next = (self.write_index.q.val() != self.read_index.q.val()) & (!self.has_head.q.val() | self.take.val());

        // A put of the key that moves away in this clock finds it no longer queued.
        self.put.next = self.put_valid.val() & self.is_clear.val();
        self.put_marks.read_address.next = self.put_key.val();
        self.got_marks_of_put.read_address.next = self.put_key.val();
        self.is_queued.next = (self.put_marks.read_data.val() ^ self.got_marks_of_put.read_data.val())
            & (!self.take.val() | (self.head_key.q.val() != self.put_key.val()));
        self.append.next = self.put.val() & !self.is_queued.val();
        self.store.next = self.put.val() & (!self.is_queued.val() | !self.put_weak.val());

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
            self.has_head.d.next = false;
            self.offers.d.next = true;
            self.offer_key.d.next = self.head_key.q.val();
            self.offer_data.d.next = self.values.read_data.val();
        }
        if self.fetch.val() {
            self.has_head.d.next = true;
            self.head_key.d.next = self.keys.read_data.val();
            self.read_index.d.next = self.read_index.q.val() + 1;
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
            self.has_head.d.next = false;
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

    /// The queue in software, register for the offer included.
    #[derive(Default)]
    struct Model {
        order: VecDeque<u64>,
        newest: [u64; 8],
        head: Option<u64>,
        offer: Option<(u64, u64)>,
    }

    impl Model {
        fn clock(&mut self, put: Option<(u64, u64, bool)>, takes: bool) {
            if takes {
                self.offer = None;
            }
            if self.offer.is_none() {
                self.offer = self.head.take().map(|key| (key, self.newest[key as usize]));
            }
            if self.head.is_none() {
                self.head = self.order.pop_front();
            }
            if let Some((key, data, weak)) = put {
                let is_queued = self.order.contains(&key) || self.head == Some(key);
                if !is_queued {
                    self.order.push_back(key);
                }
                if !is_queued || !weak {
                    self.newest[key as usize] = data;
                }
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
        for _ in 0..12 {
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

    /// Puts in each clock and takes in each clock; returns what came out.
    fn rush(name: &str, key: fn(u64) -> u64) -> Vec<Bits<16>> {
        let mut bench = bench(name);
        bench.uut.get_ready.next = true;
        let mut got = vec![];
        for clock in 0..103u64 {
            bench.uut.put_valid.next = clock < 100;
            bench.uut.put_key.next = key(clock).into();
            bench.uut.put_data.next = clock.into();
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
    fn a_put_and_a_get_go_through_every_clock() {
        assert_eq!(rush("coalesce_rate", |clock| clock % 8), (0..100u64).map(Bits::from).collect::<Vec<_>>());
    }

    #[test]
    fn puts_of_one_key_in_each_clock_merge_in_pairs_and_the_last_comes_out() {
        assert_eq!(rush("coalesce_one", |_| 5), (0..50u64).map(|pair| Bits::from(2 * pair + 1)).collect::<Vec<_>>());
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
