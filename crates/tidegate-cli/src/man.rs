//! `tidegate man`: the manual, one page for each command.

use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::args::Args;
use crate::failure::Failure;
use crate::{Answer, output};

/// Writes the pages into a folder, which is made where there is none.
pub(crate) fn run(folder: &Path) -> Result<Answer, Failure> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let written = std::fs::create_dir_all(folder).and_then(|()| write_pages(&command, folder));
    let shown = output::printable(&folder.to_string_lossy());
    written.map_err(|error| Failure::Asked(format!("{shown}: {error}")))?;
    output::tell(&format!("the manual is in {shown}\n"));
    Ok(Answer::Yes)
}

fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    std::fs::write(folder.join(man.get_filename()), page(command, &man)?)?;
    command.get_subcommands().try_for_each(|command| write_pages(command, folder))
}

fn page(command: &clap::Command, man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_help() {
        // Examples are lines, and are to stay as they are.
        writeln!(page, ".SH NOTES\n.nf\n{}\n.fi", escaped(&notes.to_string()))?;
    }
    Ok(page)
}

/// Text as it stands: without what the formatter would take for a command of its own.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with(['.', '\'']) {
            escaped.push_str("\\&");
        }
        for c in line.chars() {
            match c {
                '\\' => escaped.push_str("\\e"),
                '-' => escaped.push_str("\\-"),
                '\'' => escaped.push_str("\\(aq"),
                c => escaped.push(c),
            }
        }
        escaped.push('\n');
    }
    escaped.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_taken_for_a_command() {
        assert_eq!(escaped(".SH 'x'\n--a \\n"), "\\&.SH \\(aqx\\(aq\n\\-\\-a \\en");
    }
}
