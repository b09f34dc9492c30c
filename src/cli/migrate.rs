//! `onrecord migrate`: the tables of a database.

use crate::store::Store;

/// Arguments of `onrecord migrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    /// PostgreSQL to migrate, as the role that owns the tables
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: String,
    /// Print whether anything was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: MigrateArgs) -> anyhow::Result<()> {
    let changed = Store::migrate(&args.database_url).await?;
    if args.json {
        return super::print(&format!("{{\"migrated\":{changed}}}\n"));
    }
    super::print(if changed {
        "migrated\n"
    } else {
        "up to date\n"
    })
}
