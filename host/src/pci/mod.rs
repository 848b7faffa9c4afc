//! A card on a PCI bus.
//!
//! | module | holds |
//! |---|---|
//! | [`function`] | what is needed of a PCI function: configuration, reset, BAR0, MSI-X, IOMMU |
//! | [`card`] | a card over one: the order of opening and closing, bus addresses, interrupts |
//! | [`bar`] | BAR0, and how its accesses are ordered with memory |
//! | [`find`](mod@find) | the cards that the system shows |
//! | [`mock`] | a bus that writes down every call, for tests |
//! | `vfio` | a real function through Linux VFIO, with the feature `vfio` |
//!
//! Everything but `vfio` is tested over the mock bus. That file does one call of the kernel for each call of [`function`], and no test
//! of the project reaches it beyond its event counters, as it needs a card and an IOMMU.
//!
//! To use a card: `pci::find_ready(pci::SYSFS)` names one, `PciCard::open` opens it, [`crate::Adapter::open`] makes an adapter of it. Its
//! function must be bound to `vfio-pci`, and its IOMMU group must hold nothing that another driver uses; two cards in one
//! group cannot both be opened. The errors say what is missing and what to do.
//!
//! What is not obvious:
//!
//! * The ids only say where to look. What proves a card is its identity register, which [`crate::Adapter::open`] reads.
//! * A card that cannot be reset is refused: it may still write for a driver that died.
//! * The IOMMU maps whole pages. Memory that shares a page with a mapping is within the card's reach.
//! * Memory that cannot be unmapped is not freed before the function is closed, and its bus address is never used again. If it is
//!   the caller's own, the card is stopped.
//! * Interrupts are event counters of the kernel; several between two looks show as one.
//! * A card may have fewer vectors than its register says. [`crate::AdapterInfo::vectors`] is what can be used.
//!
//! # Hosts
//!
//! The feature `vfio` is for x86-64 Linux and does not compile elsewhere. The standard library's fences order memory among
//! threads, which on x86-64 is enough for a device too (see [`bar`]). On aarch64 it is not: a fence is `dmb ish` there, and
//! the card is no observer of the inner shareable domain. A port has to put `dmb oshst` in front of register writes (`dmb osh` where
//! reads come before), `dmb oshld` behind register reads and between phase and entry (`cq.rs`, `events.rs`), and must
//! refuse systems whose PCI is not coherent with the caches.

pub mod bar;
pub mod card;
pub mod find;
pub mod function;
mod iova;
pub mod mock;
#[cfg(feature = "vfio")]
pub mod vfio;

pub use card::Card;
pub use find::{find, find_ready, FoundCard, SYSFS};
#[cfg(feature = "vfio")]
pub use vfio::PciCard;
