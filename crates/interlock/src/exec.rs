//! Around somebody's job: runs it as if nobody were there, and tells how it went.
//!
//! The job comes first. It is started before anything is reported, nothing that goes wrong with reporting is its
//! problem, and what cannot be delivered is spooled with its true time (`spool`). A short job is reported once, start
//! and end together: that is one write to the disk, or two requests.

pub(crate) mod child;
pub(crate) mod spool;
mod tail;
pub(crate) mod tls;
pub(crate) mod way;
