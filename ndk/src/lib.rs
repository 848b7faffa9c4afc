//! The C interface of NDKPI over the driver: objects with headers and tables of functions, as `ndkpi.h` has them.
//!
//! | module | holds |
//! |---|---|
//! | [`abi`] | types, tables and values of the interface; `verbena_ndk.h` is made from it |
//! | [`open`] | devices and adapters: what NDIS does on Windows |
//! | `object` | header, table and lifetime that all objects have |
//! | `adapter`, `pd`, `cq`, `qp`, `mr`, `lam`, `connector`, `listener`, `endpoint` | the objects, one a file |
//! | `address` | socket addresses |
//!
//! Everything that decides anything is in `verbena-host`; here pointers become objects and errors become statuses.
//!
//! # Lifetimes
//!
//! A pointer that the consumer holds is one count of an [`std::sync::Arc`]; so is each successor's hold on its antecedents. A close
//! gives the consumer's count back. Whoever gives back the last one takes the driver's object off the card, and when that is done the
//! close completion is called; only behind it the holds on the antecedents go. So an antecedent that was closed first
//! completes its close after all its successors have completed theirs.
//!
//! # Where callbacks run
//!
//! In [`open::VerbenaProcessEvents`], and in [`open::VerbenaCloseNdkAdapter`], which waits; on no other stack, with no lock held, one at a time for an adapter.
//!
//! # What is trusted
//!
//! A consumer of NDKPI is a part of the kernel: pointers that it gives are valid by contract, and this crate can't check them. Null
//! pointers where the interface demands an object give `STATUS_INVALID_PARAMETER`.

#![deny(missing_docs)]

pub mod abi;
mod adapter;
mod address;
mod connector;
mod cq;
mod endpoint;
mod lam;
mod listener;
mod mr;
mod object;
pub mod open;
mod pd;
mod qp;
