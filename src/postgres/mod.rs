//! The embedded PostgreSQL: finding an installed server, and running a private cluster of it.
//!
//! With no database address given, the server keeps its records in a cluster of its own under its
//! data folder. Nobody else can reach that cluster: it listens on no network address, only on a
//! Unix socket in a folder that no other user may enter. That folder is the whole of its access
//! control, so `runtime_dir` is the file to read with suspicion.
//!
//! What lies in the data folder:
//!
//! | name | what it is |
//! |---|---|
//! | `postgres` | the cluster, complete: it gets this name only after `initdb` finished |
//! | `postgres.new` | an `initdb` that is running or was cut off; thrown away at the next start |
//! | `postgres.lock` | locked while a server runs here; holds its process id, for people |
//! | `postgres.log`, `postgres.log.1` | what PostgreSQL said, at most a few MiB |

mod account;
mod cluster;
mod create;
mod environment;
mod error;
mod inspect;
mod installation;
mod left_over;
mod log;
mod runtime_dir;
mod tuning;

pub use cluster::{Cluster, Durability};
pub use error::PostgresError;
pub use inspect::{ClusterState, Inspection, inspect};
pub use installation::Installation;
