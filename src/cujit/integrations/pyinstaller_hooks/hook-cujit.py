"""The hook of PyInstaller for cujit, which ``pyinstaller40`` in the entry points leads to."""

from cujit.integrations.pyinstaller_build import data_files, modules

hiddenimports = [*modules("cujit"), *modules("cuda.bindings")]
datas = data_files()
module_collection_mode = "pyz+py"  # the sources identify the machine code that cujit caches
