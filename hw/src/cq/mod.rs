//! Completions and events: what the card writes for the driver to find.

mod cqe_writer;
mod event_writer;
mod moderator;
mod progress_writer;

pub use cqe_writer::CqeWriter;
pub use event_writer::EventWriter;
pub use moderator::Moderator;
pub use progress_writer::ProgressWriter;
