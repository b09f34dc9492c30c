//! The stand-alone verifier: everything is in the library.

use onrecord_verify::cli::{Surroundings, config_dir, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where this binary reads its environment"
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
    ExitCode::from(run(std::env::args_os().skip(1), surroundings))
}
