"""What an installation made before the plugin moved still names as its entry point."""

import cujit.integrations.pytest_plugin as _plugin

globals().update({name: value for name, value in vars(_plugin).items() if not name.startswith("__")})
