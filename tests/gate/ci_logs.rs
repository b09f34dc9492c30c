//! Reports that other people's tools wrote.

use crate::line;
use crate::shared::shared;

#[test]
fn table() {
    let Some(folder) = shared("data/ci-logs") else {
        return;
    };
    let mut folders = vec![folder.clone()];
    let mut out = Vec::new();
    while let Some(one) = folders.pop() {
        for entry in std::fs::read_dir(one).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&folder).unwrap().display().to_string();
            out.push(format!("{name}: {}", line(&std::fs::read(&path).unwrap())));
        }
    }
    out.sort();
    for line in out {
        println!("{line}");
    }
}
