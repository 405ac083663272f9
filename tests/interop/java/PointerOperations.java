import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.FileIO;

/**
 * Table operations whose catalog is one variable: the location of the current metadata file.
 *
 * <p>A commit writes the next metadata file beside the last and moves the variable, so a table that any
 * catalog made can be committed to, and the result be registered in any catalog.
 */
final class PointerOperations extends BaseMetastoreTableOperations {
  private static final FileIO IO = new HadoopFileIO(configuration());

  private String location;

  PointerOperations(String location) {
    this.location = location;
  }

  static BaseTable table(String location) {
    return new BaseTable(new PointerOperations(location), "interop");
  }

  static FileIO fileIO() {
    return IO;
  }

  static String location(BaseTable table) {
    table.refresh();
    return ((PointerOperations) table.operations()).location;
  }

  /** Hadoop's checksumming local file system would leave a .crc file beside each file. */
  private static Configuration configuration() {
    Configuration configuration = new Configuration();
    configuration.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
    return configuration;
  }

  @Override
  protected String tableName() {
    return "interop";
  }

  @Override
  public FileIO io() {
    return IO;
  }

  @Override
  protected void doRefresh() {
    refreshFromMetadataLocation(location);
  }

  @Override
  protected void doCommit(TableMetadata base, TableMetadata metadata) {
    location = writeNewMetadataIfRequired(base == null, metadata);
  }
}
