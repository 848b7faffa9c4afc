//! A card over the mock bus.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use verbena_abi::limits::VECTORS;
use verbena_abi::regs::{EqConfig, Id};

use super::*;
use crate::adapter::{Adapter, AdapterConfig};
use crate::pci::function::Identity;
use crate::pci::mock::{Call, MockBus, MockConfig, MockFunction};

type MockCard = Card<MockFunction>;

/// What opening calls, and behind each call what dropping it calls, which happens in reverse order.
const OPENING: &[(Call, &[Call])] = &[
    (Call::Identity, &[]),
    (Call::BusMaster(false), &[]),
    (Call::Reset, &[]),
    (Call::MemorySpace(true), &[Call::MemorySpace(false)]),
    (Call::MapBar, &[Call::UnmapBar]),
    (Call::EnableVectors(VECTORS), &[Call::DisableVectors, Call::DropCounters]),
    (Call::BusMaster(true), &[Call::BusMaster(false)]),
];

fn opening() -> Vec<Call> {
    OPENING.iter().map(|(call, _)| call.clone()).collect()
}

/// Returns what undoes the first `steps` of opening.
fn closing(steps: usize) -> Vec<Call> {
    let undone = OPENING[..steps].iter().rev().flat_map(|(_, undo)| undo.iter().cloned());
    undone.chain([Call::Close]).collect()
}

fn open(config: MockConfig) -> (Arc<MockBus>, Arc<MockCard>) {
    let (bus, function) = MockBus::new(config);
    let card = Card::over(function).unwrap();
    assert_eq!(bus.take_calls().len(), OPENING.len());
    (bus, card)
}

/// Opens a card that cannot be, and returns why and what was called.
fn refused(config: MockConfig) -> (String, Vec<Call>) {
    let (bus, function) = MockBus::new(config);
    let error = Card::over(function).unwrap_err();
    (error.to_string(), bus.take_calls())
}

fn with_page(page: usize) -> MockConfig {
    MockConfig { page, ..Default::default() }
}

fn with_range(range: std::ops::Range<u64>) -> MockConfig {
    MockConfig { ranges: Vec::from([range]), ..Default::default() }
}

fn alloc(card: &Arc<MockCard>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
    Arc::clone(card).alloc(len, align)
}

/// Maps memory that a test owns.
fn map(card: &MockCard, memory: &mut [u8]) -> Result<u64, Error> {
    let ptr = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: nobody accesses memory at the mock bus.
    unsafe { card.map(ptr, memory.len()) }
}

#[test]
fn opening_and_closing_make_exactly_these_calls() {
    let (bus, function) = MockBus::new(MockConfig::default());
    let card = Card::over(function).unwrap();
    assert_eq!(bus.take_calls(), opening());
    drop(card);
    let order = [Call::BusMaster(false), Call::DisableVectors, Call::DropCounters, Call::UnmapBar, Call::MemorySpace(false), Call::Close];
    assert_eq!(bus.take_calls(), order);
    assert_eq!(closing(OPENING.len()), order);
}

#[test]
fn a_failure_at_each_step_of_opening_undoes_the_earlier_ones() {
    let texts = [
        "reading the card's ids: the mock",
        "disabling bus mastering: the mock",
        "the card cannot be reset alone, by a function-level reset or one of its slot: the mock",
        "enabling memory space: the mock",
        "mapping BAR0: the mock",
        "enabling MSI-X: the mock",
        "enabling bus mastering: the mock",
    ];
    assert_eq!(texts.len(), OPENING.len());
    for (step, text) in texts.iter().enumerate() {
        let (bus, function) = MockBus::new(MockConfig::default());
        bus.fail(OPENING[step].0.clone(), 0);
        let error = Card::over(function).unwrap_err().to_string();
        assert!(error.starts_with(text), "step {step}: {error}");
        // What failed is not undone: it is not on.
        let expected: Vec<Call> = opening().into_iter().take(step + 1).chain(closing(step)).collect();
        assert_eq!(bus.take_calls(), expected, "step {step}");
    }
}

#[test]
fn closing_goes_on_behind_a_failure() {
    for call in [Call::BusMaster(false), Call::DisableVectors, Call::MemorySpace(false)] {
        let (bus, card) = open(MockConfig::default());
        bus.fail(call, 0);
        drop(card);
        assert_eq!(bus.take_calls(), closing(OPENING.len()));
    }
}

#[test]
fn another_function_is_not_touched() {
    let (error, calls) = refused(MockConfig { identity: Identity { vendor: 0x10EE, device: 0x903F }, ..Default::default() });
    assert_eq!(error, "PCI function 10ee:903f is no Verbena card, which is 10ee:5652");
    assert_eq!(calls, [Call::Identity, Call::Close]);
}

#[test]
fn a_bar_that_is_missing_or_too_small_is_refused() {
    for len in [0, 4096, (1 << 24) - 4096] {
        let (error, calls) = refused(MockConfig { bar0_len: len, ..Default::default() });
        assert_eq!(error, format!("the card's size of BAR0 in bytes is {len}, at least 16777216 is needed"));
        assert_eq!(calls, [&opening()[..4], &closing(4)].concat());
    }
    open(MockConfig { bar0_len: 1 << 25, ..Default::default() });
}

#[test]
fn an_iommu_without_page_size_is_refused() {
    let (error, calls) = refused(with_page(0));
    assert_eq!(error, "the card's page size in its IOMMU is 0, at least 4096 is needed");
    assert_eq!(calls, [&opening()[..6], &closing(6)].concat());
}

#[test]
fn vectors_beyond_a_mask_stay_disabled_and_none_is_refused() {
    let (bus, function) = MockBus::new(MockConfig { vectors: 2048, ..Default::default() });
    let card = Card::over(function).unwrap();
    assert!(bus.take_calls().contains(&Call::EnableVectors(32)));
    assert_eq!(card.vectors(), 32);

    let (error, calls) = refused(MockConfig { vectors: 0, ..Default::default() });
    assert_eq!(error, "the card's number of MSI-X vectors is 0, at least 1 is needed");
    assert_eq!(calls, [&opening()[..5], &closing(5)].concat());
}

#[test]
fn an_adapter_knows_the_vectors_that_the_function_has() {
    let config = |event_vector| AdapterConfig { event_vector, ..AdapterConfig::new([2, 0, 0, 0, 0, 1], Some(Ipv4Addr::LOCALHOST), None) };
    let (bus, function) = MockBus::new(MockConfig { vectors: 4, ..Default::default() });
    let card = Card::over(function).unwrap();
    assert!(bus.take_calls().contains(&Call::EnableVectors(4)));
    let error = Adapter::open(Arc::clone(&card) as Arc<dyn Device>, config(4)).unwrap_err();
    assert_eq!(error.to_string(), "event_vector is 4, the limit is 3");
    let adapter = Adapter::open(card, config(3)).unwrap();
    assert_eq!(adapter.info().vectors, 4);
}

#[test]
fn an_adapter_maps_its_ring_before_it_names_it_and_unmaps_it_behind_the_last_answer() {
    let (bus, card) = open(MockConfig::default());
    let config = AdapterConfig::new([2, 0, 0, 0, 0, 1], Some(Ipv4Addr::LOCALHOST), None);
    let adapter = Adapter::open(card, config).unwrap();
    let calls = bus.take_calls();
    let position = |is_it: fn(&Call) -> bool| calls.iter().position(is_it).unwrap();
    let mapped = position(|call| matches!(call, Call::Map { .. }));
    let named = position(|call| matches!(call, Call::Write(offset, _) if *offset == verbena_abi::regs::EqBaseLo::OFFSET as usize));
    assert!(mapped < named, "{calls:?}");

    drop(adapter);
    let calls = bus.take_calls();
    let eq_config = EqConfig::OFFSET as usize;
    assert!(
        matches!(calls[..3], [Call::Write(off, 0), Call::Read(answer), Call::Unmap { .. }] if off == eq_config && answer == eq_config),
        "{calls:?}"
    );
    assert_eq!(calls[3..], closing(OPENING.len()));
    assert_eq!(bus.breaches(), [""; 0]);
}

#[test]
fn registers_are_read_and_written_at_their_offsets() {
    let (bus, card) = open(MockConfig::default());
    let bar = card.bar();
    assert_eq!(bar.read32(Id::OFFSET), Id::RESET);
    bar.write32(0x80, 0x1234_5678);
    assert_eq!(bar.read32(0x80), 0x1234_5678);
    bar.write32((1 << 24) - 4, 5);
    assert_eq!(bus.take_calls(), [Call::Read(0), Call::Write(0x80, 0x1234_5678), Call::Read(0x80), Call::Write((1 << 24) - 4, 5)]);
}

#[test]
#[should_panic(expected = "offset 0x1000000 is no register of BAR0")]
fn a_register_behind_the_bar_is_not_accessed() {
    open(MockConfig::default()).1.bar().read32(1 << 24);
}

#[test]
#[should_panic(expected = "offset 0x82 is no register of BAR0")]
fn a_register_that_is_not_aligned_is_not_accessed() {
    open(MockConfig::default()).1.bar().write32(0x82, 0);
}

#[test]
fn interrupts_become_a_mask_and_are_taken_once() {
    let (bus, card) = open(MockConfig::default());
    assert_eq!(card.take_interrupts(), 0);
    for vector in [0, 5, 31, 5] {
        bus.raise(vector);
    }
    card.wait();
    assert_eq!(card.take_interrupts(), 1 | 1 << 5 | 1 << 31);
    assert_eq!(card.take_interrupts(), 0);
    bus.raise(7);
    assert_eq!(card.take_interrupts(), 1 << 7);
}

#[test]
fn an_interrupt_that_another_thread_takes_is_not_reported_twice() {
    let (bus, card) = open(MockConfig::default());
    bus.raise(3);
    bus.raise(4);
    bus.steal(3);
    assert_eq!(card.take_interrupts(), 1 << 4);
}

#[test]
fn allocations_are_whole_pages_of_their_own() {
    for page in [4096, 65_536] {
        let (bus, card) = open(with_page(page));
        let buffer = alloc(&card, 100, 64).unwrap();
        assert_eq!((buffer.len(), buffer.va() % page as u64, buffer.iova() % page as u64), (100, 0, 0));
        assert_eq!(buffer.to_vec(), [0; 100]);
        let second = alloc(&card, page + 1, 64).unwrap();
        assert_eq!(bus.mapped(), [(buffer.iova(), page), (second.iova(), 2 * page)].into());
        let iova = buffer.iova();
        drop(buffer);
        drop(second);
        assert_eq!(bus.mapped(), [].into());
        assert_eq!(alloc(&card, 1, 64).unwrap().iova(), iova, "addresses are used again");
        assert_eq!(bus.breaches(), [""; 0]);
    }
}

#[test]
fn an_alignment_above_the_page_holds_for_both_addresses() {
    let (_, card) = open(MockConfig::default());
    let _first = alloc(&card, 1, 64).unwrap();
    let buffer = alloc(&card, 1, 1 << 16).unwrap();
    assert_eq!((buffer.va() % (1 << 16), buffer.iova() % (1 << 16)), (0, 0));
}

#[test]
fn no_bytes_and_too_many_are_no_allocation() {
    let (bus, card) = open(MockConfig::default());
    for len in [0, usize::MAX, usize::MAX - 4096] {
        let error = alloc(&card, len, 64).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    }
    assert!(matches!(map(&card, &mut []), Err(Error::OutOfMemory { len_bytes: 0, .. })));
    assert_eq!(bus.take_calls(), []);
}

#[test]
fn memory_of_the_caller_is_mapped_with_the_pages_that_it_touches() {
    for page in [4096usize, 65_536] {
        let (bus, card) = open(with_page(page));
        let mut memory = vec![0; 4 * page];
        // From a page's border on.
        let base = memory.as_ptr() as usize;
        let border = base.next_multiple_of(page) - base;
        for (start, len, pages) in [(0, page, 1), (0, 1, 1), (page - 1, 1, 1), (page - 1, 2, 2), (1, page, 2), (8, 2 * page, 3)] {
            let iova = map(&card, &mut memory[border + start..][..len]).unwrap();
            assert_eq!(iova % page as u64, (start % page) as u64);
            assert_eq!(bus.mapped(), [(iova - (start % page) as u64, pages * page)].into(), "{start} {len}");
            card.unmap(iova, len);
            assert_eq!(bus.mapped(), [].into());
        }
        assert_eq!(bus.breaches(), [""; 0]);
    }
}

#[test]
fn addresses_that_the_card_may_still_use_are_not_used_again() {
    let (bus, card) = open(MockConfig::default());
    let mut memory = vec![0; 1];
    let iova = map(&card, &mut memory).unwrap();
    card.unmap_for_good(iova, 1);
    assert_eq!((bus.mapped(), bus.breaches()), ([].into(), vec![]), "it leads nowhere");
    let page = iova & !0xFFF;
    assert_ne!(alloc(&card, 1, 64).unwrap().iova(), page);
    assert_ne!(map(&card, &mut memory).unwrap() & !0xFFF, page);
}

#[test]
fn the_same_memory_can_be_mapped_twice() {
    let (bus, card) = open(MockConfig::default());
    let mut memory = vec![0; 100];
    let (first, second) = (map(&card, &mut memory).unwrap(), map(&card, &mut memory).unwrap());
    assert_ne!(first, second);
    card.unmap(first, 100);
    assert_eq!(bus.mapped().len(), 1);
    card.unmap(second, 100);
    assert_eq!((bus.mapped(), bus.breaches()), ([].into(), vec![]));
}

#[test]
fn reserved_addresses_are_left_out_and_exhaustion_is_told() {
    let (bus, card) = open(MockConfig { page: 65_536, ranges: vec![0x1000..0x3_0000, 0x4_F000..0x7_FFFF], ..Default::default() });
    // The ranges hold the pages 1, 2, 5 and 6; the last page is not whole.
    assert!(matches!(alloc(&card, 3 * 65_536, 64), Err(Error::OutOfMemory { len_bytes: 196_608, align: 65_536 })));
    let all: Vec<DmaBuffer> = (0..4).map(|_| alloc(&card, 1, 64).unwrap()).collect();
    assert_eq!(all.iter().map(DmaBuffer::iova).collect::<Vec<_>>(), [0x1_0000, 0x2_0000, 0x5_0000, 0x6_0000]);
    assert!(matches!(alloc(&card, 1, 64), Err(Error::OutOfMemory { .. })));
    assert!(matches!(map(&card, &mut [0]), Err(Error::OutOfMemory { .. })));
    drop(all);
    assert_eq!(alloc(&card, 2 * 65_536, 64).unwrap().iova(), 0x1_0000);
    assert_eq!(bus.breaches(), [""; 0]);
}

#[test]
fn a_mapping_that_is_refused_costs_no_addresses() {
    let (bus, card) = open(with_range(0x1000..0x2000));
    bus.fail(Call::Map { iova: 0, len: 0 }, 0);
    let error = alloc(&card, 1, 64).unwrap_err().to_string();
    assert_eq!(error, "mapping memory for the card, which counts as locked memory (RLIMIT_MEMLOCK): the mock was told to fail");
    assert!(matches!(map(&card, &mut [0]), Err(Error::Os { .. })));
    bus.heal();
    assert_eq!(alloc(&card, 1, 64).unwrap().iova(), 0x1000);
    assert!(lock(&card.kept).is_empty());
}

/// Says when it is freed.
struct Probe(Arc<MockBus>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.note("memory is freed");
    }
}

#[test]
fn memory_that_cannot_be_unmapped_is_freed_behind_the_function_and_its_address_is_lost() {
    let (bus, card) = open(with_range(0x1000..0x3000));
    let buffer = alloc(&card, 1, 64).unwrap();
    bus.fail(Call::Unmap { iova: 0, len: 0 }, 0);
    drop(buffer);
    bus.heal();
    assert_eq!(lock(&card.kept).len(), 1);
    lock(&card.kept).push(Box::new(Probe(Arc::clone(&bus))));
    // The card goes on: it reaches memory that nobody else has.
    assert_eq!(bus.take_calls(), [Call::Map { iova: 0x1000, len: 4096 }, Call::Unmap { iova: 0x1000, len: 4096 }]);

    let other = alloc(&card, 1, 64).unwrap();
    assert_eq!(other.iova(), 0x2000);
    assert!(matches!(alloc(&card, 1, 64), Err(Error::OutOfMemory { .. })));
    drop(other);
    bus.take_calls();
    drop(card);
    assert_eq!(bus.take_calls(), [closing(OPENING.len()), vec![Call::Note("memory is freed")]].concat());
}

#[test]
fn memory_of_the_caller_that_cannot_be_unmapped_stops_the_card() {
    let (bus, card) = open(with_range(0x1000..0x2000));
    let mut memory = [0; 8];
    // Within one page, so that one is enough.
    let iova = map(&card, &mut memory[..1]).unwrap();
    bus.fail(Call::Unmap { iova: 0, len: 0 }, 0);
    bus.take_calls();
    card.unmap(iova, 1);
    assert_eq!(bus.take_calls(), [Call::Unmap { iova: 0x1000, len: 4096 }, Call::BusMaster(false)]);
    assert!(matches!(map(&card, &mut memory[..1]), Err(Error::OutOfMemory { .. })), "the address is lost");
}

#[test]
fn what_is_not_mapped_is_not_unmapped() {
    let (bus, card) = open(MockConfig::default());
    let buffer = alloc(&card, 8192, 64).unwrap();
    let iova = buffer.iova();
    bus.take_calls();
    for (at, len) in [(iova, 4096), (iova + 4096, 4096), (iova + 8192, 8192), (iova, 0), (0, 1), (u64::MAX, 4096), (iova, usize::MAX)] {
        card.unmap(at, len);
    }
    assert_eq!(bus.take_calls(), [], "neither the bus nor the bus mastering is touched");
    drop(buffer);
    assert_eq!((bus.mapped(), bus.breaches()), ([].into(), vec![]));
}

#[test]
fn a_buffer_keeps_the_card_open() {
    let (bus, card) = open(MockConfig::default());
    let buffer = alloc(&card, 1, 64).unwrap();
    bus.take_calls();
    drop(card);
    assert_eq!(bus.take_calls(), []);
    let iova = buffer.iova();
    drop(buffer);
    // Unmapped, then freed, then the card goes; what could not be unmapped is freed behind that, see above.
    assert_eq!(bus.take_calls(), [vec![Call::Unmap { iova, len: 4096 }], closing(OPENING.len())].concat());
}

#[test]
fn threads_that_map_at_once_get_addresses_of_their_own() {
    let (bus, card) = open(with_range(0x1000..0x4_0000));
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let card = &card;
            scope.spawn(move || {
                for round in 0..200 {
                    let buffer = alloc(card, 4096 * (1 + (round + thread) % 3), 64).unwrap();
                    assert_eq!(buffer.to_vec().iter().max(), Some(&0));
                }
            });
        }
    });
    assert_eq!((bus.mapped(), bus.breaches()), ([].into(), vec![]));
}

/// A step of a sequence of mappings.
#[derive(Clone, Debug)]
enum Step {
    Alloc { len: usize, log_align: u32 },
    Map { offset: usize, len: usize },
    Release { which: usize, fails: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1usize..300_000, 6u32..18).prop_map(|(len, log_align)| Step::Alloc { len, log_align }),
        2 => (0usize..70_000, 1usize..200_000).prop_map(|(offset, len)| Step::Map { offset, len }),
        3 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, fails)| Step::Release { which, fails }),
    ]
}

proptest! {
    /// The bus refuses an overlap, a part of a page and a reserved address by itself; whatever the steps are, it has nothing to refuse.
    #[test]
    fn bus_addresses_never_overlap(page in prop_oneof![Just(4096usize), Just(65_536)], steps in prop::collection::vec(step(), 1..60)) {
        let ranges = vec![0x1000..0x8_0000, 0x9_F000..0x20_0000];
        let (bus, card) = open(MockConfig { page, ranges, ..Default::default() });
        let mut memory = vec![0u8; 300_000];
        let (mut buffers, mut maps, mut lost) = (Vec::new(), Vec::new(), 0);
        for step in steps {
            match step {
                Step::Alloc { len, log_align } => match alloc(&card, len, 1 << log_align) {
                    Ok(buffer) => {
                        prop_assert_eq!(buffer.iova() % (1 << log_align), 0);
                        buffers.push(buffer);
                    }
                    Err(error) => prop_assert!(matches!(error, Error::OutOfMemory { .. }), "{}", error),
                },
                Step::Map { offset, len } => match map(&card, &mut memory[offset..][..len]) {
                    Ok(iova) => maps.push((iova, len)),
                    Err(error) => prop_assert!(matches!(error, Error::OutOfMemory { .. }), "{}", error),
                },
                Step::Release { which, fails } => {
                    if fails {
                        bus.fail(Call::Unmap { iova: 0, len: 0 }, 0);
                    }
                    if which % 2 == 0 && !buffers.is_empty() {
                        drop(buffers.swap_remove(which % buffers.len()));
                        lost += usize::from(fails);
                    } else if !maps.is_empty() {
                        let (iova, len) = maps.swap_remove(which % maps.len());
                        card.unmap(iova, len);
                        lost += usize::from(fails);
                    }
                    bus.heal();
                }
            }
            // What failed to be unmapped is still mapped, and its addresses are nobody's.
            prop_assert_eq!(bus.mapped().len(), buffers.len() + maps.len() + lost);
            prop_assert_eq!(bus.breaches(), [""; 0]);
        }
    }
}
