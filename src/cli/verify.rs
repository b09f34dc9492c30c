//! `onrecord verify`: the same as the stand-alone `onrecord-verify`.

use onrecord_verify::cli::{Surroundings, config_dir};
use std::ffi::OsString;
use std::process::ExitCode;

/// Arguments of `onrecord verify`: those of `onrecord-verify`.
#[derive(Clone, Debug, clap::Args)]
// The flag goes through to the verifier; the text is for the manual page.
#[command(disable_help_flag = true, after_help = onrecord_verify::cli::HELP)]
pub struct VerifyArgs {
    /// `[--trust FILE] [--full] [--ledger FILE] [--receipts FILE] [--present FILE] [--json] FILE`; see --help
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS",
        value_hint = clap::ValueHint::FilePath
    )]
    pub args: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: VerifyArgs) -> ExitCode {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the user's configuration is, the verifier is told by its caller"
    )]
    let config_dir = config_dir(
        std::env::var_os("XDG_CONFIG_HOME"),
        std::env::var_os("HOME"),
    );
    let surroundings = Surroundings {
        config_dir,
        stdin: &mut std::io::stdin().lock(),
        stdout: &mut std::io::stdout().lock(),
        stderr: &mut std::io::stderr().lock(),
    };
    ExitCode::from(onrecord_verify::cli::run(args.args, surroundings))
}
