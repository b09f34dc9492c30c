//! `onrecord migrate`: the tables of a database.

use crate::store::Store;

/// Arguments of `onrecord migrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    /// PostgreSQL to migrate, as the role that owns the tables
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: String,
    /// PostgreSQL for the keys of runs, as the role that owns their tables; what the first one has of
    /// them is moved there
    #[arg(
        long,
        env = "ONRECORD_KEY_DATABASE_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub key_database_url: Option<String>,
    /// Print whether anything was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: MigrateArgs) -> anyhow::Result<()> {
    let key_url = args.key_database_url.as_deref();
    let key_url = key_url.filter(|url| !url.is_empty());
    let changed = Store::migrate(&args.database_url, key_url).await?;
    if args.json {
        return super::print(&format!("{{\"migrated\":{changed}}}\n"));
    }
    super::print(if changed {
        "migrated\n"
    } else {
        "up to date\n"
    })
}
