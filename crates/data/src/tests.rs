#![allow(clippy::unwrap_used, missing_docs)]
