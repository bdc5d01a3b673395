"""The commands behind `gmip.cli`, one module each, and what they share: options, parsing, printing, errors."""
